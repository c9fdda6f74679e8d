"""Run the module of the same name with every entry of `storage` and the nodes that have it."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from deepopsctl.storage.expected import addresses_of, wanted_on
from deepopsctl.storage.writer import from_variable

NOTHING = {
    "suite": "storage", "name": "storage-entries", "status": "skip", "measured": "", "expected": "", "unit": "",
    "message": "cluster.yml declares no storage: nothing to test",
}  # fmt: skip


class ActionModule(ActionBase):
    """Takes `mounts` (storage_mounts of the inventory) and hands `wanted` to the module, for the nodes in `seen`."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        mounts = from_variable(arguments.pop("mounts"))
        among = {*arguments["compute"], *arguments["seen"]}
        wanted = wanted_on(mounts, among, addresses_of(mounts, task_vars["hostvars"]))
        if not wanted:
            checks = [{**NOTHING, "target": arguments["cluster"]}]
            return {**result, "changed": False, "deepops": {"checks": checks}}
        arguments.update(wanted=wanted)
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
        result.pop("invocation", None)
        return result
