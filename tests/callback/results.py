"""One JSON line for every task that a host has finished, for tests to read; says what a user's log could say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: results
type: notification
short_description: Task results as JSON lines
description: Appends a line to the file that DEEPOPS_TEST_RESULTS names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible has no types
    """Ansible asks for this name."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "results"
    CALLBACK_NEEDS_ENABLED = True

    def _write(self, status: str, result: Any) -> None:
        line = {"task": result.task_name, "host": result.host.name, "status": status, "data": result.result}
        with Path(os.environ["DEEPOPS_TEST_RESULTS"]).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, default=str) + "\n")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._write("failed", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._write("skipped", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._write("unreachable", result)
