"""Wait for an answer, and no longer than allowed. Python 3.8."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(ask: Callable[[], T], timeout_s: float, pause_s: float, done: Callable[[T], bool] = bool) -> T:
    """Ask until the answer is `done`, by default until it is true, or time is up; returns the last answer.

    It asks at least once, and does not sleep beyond the end: what happens in the last pause is seen.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        answer = ask()
        if left <= 0 or done(answer):
            return answer
        time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
