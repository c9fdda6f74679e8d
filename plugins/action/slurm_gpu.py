"""Run the module of the same name with what only the control machine has: gpucheck, and gres.conf's files."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from ansible.plugins.action import ActionBase

from deepopsctl.gpus import notation
from deepopsctl.node_programs.gpu_check.pack import packed
from deepopsctl.text import node_sets as text_node_sets


class ActionModule(ActionBase):
    """Takes `nodes` (slurm_nodes of the inventory) and hands `declared` and `program` to the module."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        declared = declared_gpus(arguments.pop("nodes"))
        arguments.update(declared=declared, program=b64encode(packed()).decode())
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
        # it repeats the arguments: the whole program, once more in every log
        result.pop("invocation", None)
        return result


def declared_gpus(node_sets: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Cards, device files where they are not the usual ones, and whether any card is cut into slices; by node."""
    declared: dict[str, dict[str, Any]] = {}
    for entry in node_sets:
        gpus = notation.from_inventory(entry.get("gpus") or {})
        if gpus is None:
            continue
        files = [path for group in gpus.groups for path in group.files]
        # `1g.10gb` as a type: slices that are declared as if they were GPUs
        sliced = "g." in gpus.type or any(group.mig or "g." in group.type for group in gpus.groups)
        node_gpus = {"cards": gpus.count, "files": files, "sliced": sliced}
        declared.update(dict.fromkeys(text_node_sets.expand(entry["names"]), node_gpus))
    return declared
