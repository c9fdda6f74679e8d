"""Run the module of the same name and read the node's clock, bounded by this machine's before and after."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """`report.clock` says when the node's clock was read (`remote`) between which two moments here."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self._execute_module(task_vars=task_vars))
        if result.get("failed") or "report" not in result:
            return result
        # after the module: the connection is open now, so a round trip is short and the bounds are narrow
        before = time.time()
        answer = self._low_level_execute_command("date +%s.%N", sudoable=False)
        after = time.time()
        result["report"]["clock"] = {"before": before, "remote": answer.get("stdout", "").strip(), "after": after}
        return result
