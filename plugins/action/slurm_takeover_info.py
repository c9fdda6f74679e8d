"""Run the module of the same name, and write what it found into a private file that the caller named.

Secrets are in no result of this plugin: no event, log or callback has them. The task must have `no_log`: at -vvv
the connection prints what comes from the node before it gets here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Arguments: the module's."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """See the class."""
        super().run(tmp, task_vars)
        if self._task.args.get("secrets") and not self._task.no_log:
            raise AnsibleActionFail("secrets are read by tasks with `no_log: true` only")
        result = self._execute_module(task_vars=task_vars)
        if not result.get("failed"):
            self._save((task_vars or {})["inventory_hostname"], result)
        return {key: value for key, value in result.items() if key != "secrets"}

    def _save(self, host: str, result: Mapping[str, Any]) -> None:
        path = Path(self._task.args["directory"]) / f"{host}.json"
        earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        facts = {**earlier, **{key: value for key, value in result.items() if not key.startswith("_ansible")}}
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(facts, stream)
