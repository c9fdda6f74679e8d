"""Run the module of the same name, and keep the secrets it found out of Ansible's results.

They go straight into a private file that the caller named: no event, log or callback ever sees them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Arguments: the module's."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        """See the class."""
        super().run(tmp, task_vars)
        found = self._execute_module(task_vars=task_vars)
        answer = {key: value for key, value in found.items() if key != "secrets"}
        if "secrets" in found and not found.get("failed"):
            self._keep(task_vars["inventory_hostname"], found)
        return answer

    def _keep(self, host, found):
        path = Path(self._task.args["folder"]) / f"{host}.json"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({key: value for key, value in found.items() if not key.startswith("_ansible")}, stream)
