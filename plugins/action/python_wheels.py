"""Run the module of the same name, and copy the wheels that it reports as missing: fetched once here, for all nodes."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from deepopsctl.errors import DeepOpsError
from deepopsctl.gpus.wheels import cache_directory, fetch_for


class ActionModule(ActionBase):
    """The module is asked first; a node that has everything costs one call and no copy."""

    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        asked = self._execute_module(module_args={**arguments, "wheels": {}}, task_vars=task_vars)
        if asked.get("failed") or not asked.get("missing") or self._task.check_mode:
            return {**result, **asked}
        directory = self._make_tmp_path()
        try:
            wheels = {}
            for name in asked["missing"]:
                local = self._fetched(arguments["libraries"][name], asked["machine"])
                wheels[name] = self._transfer_file(local, self._connection._shell.join_path(directory, name + ".whl"))
            done = self._execute_module(module_args={**arguments, "wheels": wheels}, task_vars=task_vars)
        except DeepOpsError as error:
            done = self._without(error)
        finally:
            self._remove_tmp_path(directory)
        return {**result, **done}

    def _without(self, error: DeepOpsError) -> dict[str, Any]:
        """A step of a deploy leaves out what needs them, and the deploy ends with a failure; anything else fails."""
        if "component" not in self._task.args:
            raise AnsibleActionFail("; ".join(filter(None, (error.message, error.hint)))) from error
        return {"changed": False, "changes": [], "deepops_left_out": {"message": error.message, "hint": error.hint}}

    @staticmethod
    def _fetched(library: dict[str, Any], architecture: str) -> str:
        return str(fetch_for(architecture, library, cache_directory(os.environ)))
