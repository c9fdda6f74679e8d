"""What all suites do in the same way: nothing in check mode, a session of jobs, and how long it took."""

from __future__ import annotations

import getpass
import os
import time
from typing import Any, Callable

from .session import Session

Request = dict[str, Any]
Result = dict[str, Any]


def run_trials(request: Request, trials: Callable[[Request], Result]) -> Result:
    """The result for `node_program`; `trials` returns what reports read: `checks`, and more of the suite's own."""
    if request["check_mode"]:
        return {"deepops": {"checks": []}, "elapsed_s": 0.0, "msg": "check mode: nothing is tried"}
    started = time.monotonic()
    result = trials(request)
    return {"deepops": result, "elapsed_s": round(time.monotonic() - started, 1)}


def session(request: Request, suite: str, run_timeout: float, minutes: int = 2) -> Session:
    """The jobs of one run, as the user who runs this."""
    user, token = getpass.getuser(), os.urandom(3).hex()
    return Session(suite, token, user, float(request["queue_timeout"]), run_timeout, minutes, request["reservation"])
