"""Make the steps of a call as each module's own action plugin would have them, for one call of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.deepopsctl.cluster.plugins.action.node_state import ActionModule as NodeState, with_step


class ActionModule(NodeState):
    """Arguments: the module's. A step may also have `when`; options that node_state fills in may be left out."""

    def arguments(self, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """`steps` without those whose `when` is false, each with its digest and its templates as files."""
        steps = self._task.args.get("steps")
        if set(self._task.args) != {"steps"} or not isinstance(steps, list):
            raise AnsibleActionFail("node_steps needs `steps`, a list, and nothing else")
        return {"steps": [self._step(step, task_vars) for step in steps if step.get("when", True)]}

    def _step(self, step: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: step[name] for name in ("step",) if name in step} | (step.get("options") or {})
        options = self.filled(with_step(self._task, own, self._templar, task_vars), task_vars)
        return {"module": step.get("module"), "options": options}
