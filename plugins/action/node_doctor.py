"""Run the module of the same name with sudo, and without it where the node's sudo does not work."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """`doctor.sudo` is '' where sudo works, else its error text; `doctor.asked` is the control machine's time."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        error_text = ""
        try:
            answer = self._ask(task_vars)
        except AnsibleError as error:
            # a sudo that hangs is Ansible's connection failure too, and the node is there all the same
            if isinstance(error, AnsibleConnectionFailure) and "privilege escalation" not in str(error):
                raise
            answer, error_text = {"failed": True}, str(error)
        if answer.get("failed") and self._connection.become:
            error_text = error_text or _words(answer)
            self._connection.set_become_plugin(None)
            answer = self._ask(task_vars)
        if "deepops" in answer:
            answer["deepops"]["doctor"]["sudo"] = error_text
        result.update(answer)
        return result

    def _ask(self, task_vars: Any) -> dict[str, Any]:
        before = time.time()
        result: dict[str, Any] = self._execute_module(task_vars=task_vars)
        if "deepops" in result:
            result["deepops"]["doctor"]["asked"] = {"before": before, "after": time.time()}
        return result


def _words(result: dict[str, Any]) -> str:
    """The node's error text where the module could not start: its last line."""
    text = str(result.get("module_stderr") or result.get("module_stdout") or result.get("msg") or "sudo failed")
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["sudo failed"])[-1]
