"""Run the module of the same name, and copy the wheels that it reports as missing: fetched once here, for all nodes."""

from __future__ import annotations

import os
from typing import Any

import ansible_collections.deepopsctl.cluster.plugins.plugin_utils.package  # noqa: F401 (what comes next needs it)
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.deepopsctl.cluster.plugins.action.node_state import with_step

from deepopsctl.errors import DeepOpsError
from deepopsctl.gpus.wheels import cache_directory, fetch_for


class ActionModule(ActionBase):
    """The module is asked first; a node that has everything costs one call and no copy."""

    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        # a role keeps a record of its step
        recorded = self._task._role is not None or "component" in self._task.args
        arguments = (
            with_step(self._task, self._task.args, self._templar, task_vars) if recorded else dict(self._task.args)
        )
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
            if not recorded:
                raise AnsibleActionFail("; ".join(filter(None, (error.message, error.hint)))) from error
            # the step is left out with what needs it
            why = {"unavailable": error.message, "hint": error.hint}
            done = self._execute_module(module_args={**arguments, **why}, task_vars=task_vars)
        finally:
            self._remove_tmp_path(directory)
        return {**result, **done}

    @staticmethod
    def _fetched(library: dict[str, Any], architecture: str) -> str:
        return str(fetch_for(architecture, library, cache_directory(os.environ)))
