"""Run the module of the same name with what this node must have mounted; nodes that have nothing see no task."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from deepopsctl.storage.node_plan import addresses_of, expected_on
from deepopsctl.storage.writer import from_variable


class ActionModule(ActionBase):
    """Takes `mounts` (storage_mounts of the inventory) and hands `entries` to the module."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        mounts = from_variable(arguments.pop("mounts"))
        entries = expected_on(mounts, arguments["node"], addresses_of(mounts, task_vars["hostvars"]))
        if not entries:
            return {**result, "changed": False, "skipped": True, "seen": {}, "skip_reason": "no storage here"}
        user = str(task_vars.get("ansible_user") or self._play_context.remote_user or "")
        arguments.update(entries=entries, user=user)
        result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
        result.pop("invocation", None)
        return result
