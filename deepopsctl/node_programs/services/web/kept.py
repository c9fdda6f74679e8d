"""Answers that stay good for some minutes: a few of them, so that no one fills the memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

GOOD_S, MOST = 600.0, 200


class Kept:
    """The newest answers."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def get(self, key: Hashable) -> Any | None:
        """One that is not too old."""
        at, answer = self._answers.get(key, (0.0, None))
        return answer if answer is not None and self._now() - at < GOOD_S else None

    def put(self, key: Hashable, answer: Any) -> None:
        """Keep it; the oldest goes."""
        self._answers.pop(key, None)
        self._answers[key] = self._now(), answer
        while len(self._answers) > MOST:
            self._answers.popitem(last=False)
