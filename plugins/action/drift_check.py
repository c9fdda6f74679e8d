"""Add a node to the groups that the answer of its gate names, as `group_by` would in a task of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """One call of the module on the node. A host-task less than `group_by` after it, for each node and component."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        result |= self._execute_module(task_vars=task_vars)
        if "clean" in result:
            # Ansible takes these of an action plugin, and of no module
            result |= groups(self._task.args["component"], self._task.args["steps"], result)
        return result


def groups(component: str, steps: Sequence[str], answer: Mapping[str, Any]) -> dict[str, Any]:
    """`add_group`, one for nodes of the same answer, and `parent_groups`, what plays of work, and of none, are about.

    Those are of each component that the answer says something about: `deepops_slurm_todo`, `..._new`, `..._done`, and
    `deepops_slurm_left_STEP` for what an earlier deploy left and this one does not want.
    """
    kinds = ["done"] if answer["clean"] else ["todo"]
    if "never deployed" in answer["reasons"]:
        kinds.append("new")
    named = [
        *(f"{component}_{kind}" for kind in kinds),
        *(f"{each}_done" for each in answer["settled"]),
        *(f"{component}_left_{step}" for step in answer["recorded"] if step not in steps),
    ]
    return {"add_group": f"deepops_gate_{'_'.join(named)}", "parent_groups": [f"deepops_{name}" for name in named]}
