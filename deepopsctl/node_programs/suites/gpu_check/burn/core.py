"""The process that loads one core and its part of the memory. Run by node.py, never by a person.

Arguments: one JSON object with `core`, `memory` (bytes) and `seconds`. Every second it writes a line of JSON: rounds of
work, their CPU seconds, bytes taken and verified; `wrong` has a wrong result, and is the last line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from .cpu import one_round
from .memory import Memory, WrongMemoryError

LINE_S = 1.0
# one third of the time for memory: a piece takes milliseconds, a round of work a tenth of a second
_MEMORY_SHARE = 0.5
_NICENESS = 10
# for a last check of the memory
_FINISH_S = 5.0


def main() -> None:
    """Load the core until time is up, an answer is wrong, or the parent process has ended."""
    order = json.loads(sys.argv[1])
    # Slurm ends all processes of a job at once: the one that reports ends the others
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # a process that feeds a GPU must not wait for a core
    os.nice(_NICENESS)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    parent = os.getppid()
    for line in load(order, lambda: os.getppid() == parent):
        answer.write(json.dumps(line) + "\n")
        answer.flush()


def load(order: dict[str, Any], wanted: Any) -> Iterator[dict[str, Any]]:
    """A line a second, until the end; `wanted()` turns false when the reader has gone."""
    pin(order["core"])
    memory = Memory(order["memory"])
    number = 0
    try:
        memory.step()
        memory.self_test()
        ends = time.monotonic() + order["seconds"]
        # one round at least, however little of the core there is for it
        while wanted() and (not number or time.monotonic() < ends):
            line = _second(number, memory, min(ends, time.monotonic() + LINE_S))
            number += line["rounds"]
            yield line
            if line.get("wrong"):
                return
        if wanted():
            yield {"verified": memory.finish(_FINISH_S)}
    except WrongMemoryError as error:
        yield {"wrong": "memory: " + str(error), "where": "memory"}


def _second(number: int, memory: Memory, until: float) -> dict[str, Any]:
    rounds, spent, before = 0, 0.0, memory.verified
    while True:
        started = time.monotonic()
        seconds, wrong = one_round(number + rounds)
        if wrong:
            return {"rounds": rounds, "cpu_s": spent, "wrong": wrong, "where": "cpu"}
        rounds, spent = rounds + 1, spent + seconds
        now = time.monotonic()
        pause = now + (now - started) * _MEMORY_SHARE
        while time.monotonic() < pause and memory.step():
            pass
        if time.monotonic() >= until:
            break
    return {"rounds": rounds, "cpu_s": spent, "bytes": memory.size, "verified": memory.verified - before}


def pin(core: int) -> None:
    """Stay on one core, so that a bad one can be named."""
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        # removed since it was listed: the work counts anyway
        return
