"""Run the module of the same name with every entry of `storage` and the nodes that have it."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from deepopsctl.node_programs._shared import checks
from deepopsctl.storage.node_plan import addresses_of, wanted_on
from deepopsctl.storage.writer import from_variable


class ActionModule(ActionBase):
    """Takes `mounts` (storage_mounts of the inventory) and hands `wanted` to the module, for the nodes in `seen`."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        mounts = from_variable(arguments.pop("mounts"))
        among = {*arguments["compute"], *arguments["seen"]}
        wanted = wanted_on(mounts, among, addresses_of(mounts, task_vars["hostvars"]))
        if not wanted:
            text = "cluster.yml declares no storage: nothing to test"
            check = checks.skipped("storage", "storage-entries", arguments["cluster"], text)
            return {**result, "changed": False, "deepops": {"checks": [check]}}
        arguments.update(wanted=wanted)
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
        result.pop("invocation", None)
        return result
