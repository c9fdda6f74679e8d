"""The command line of the sustained load: `gpucheck --burn SECONDS`."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Callable, Iterator

from .burn import Order, burn_node
from .burnjudge import judge_burn
from .verdicts import FAIL, PASS, WARN, status_of

COMMAND = "gpucheck-burn"
SCHEMA = 1


def burn(given: Any, tell: Callable[[str], None]) -> dict[str, Any]:
    """Load this node as the arguments say; the document of --json. Ends early, and says so, on SIGTERM and Ctrl-C."""
    stop = Stop()
    order = Order(given.burn, given.memory_share, given.busy_too, not given.without_gpus, stop.reason)
    result = burn_node(order, tell)
    return document(result, judge_burn(result, given.expect))


def document(result: dict[str, Any], checks: list[dict[str, str]]) -> dict[str, Any]:
    """What --json prints."""
    # nothing proven is no success, and half of the time proves nothing
    good = status_of(checks) in (PASS, WARN) and not result["ended"]
    return {"schema": SCHEMA, "command": COMMAND, "ok": good, "result": result, "checks": checks}


def failed(found: dict[str, Any]) -> bool:
    """Whether a check failed."""
    return any(entry["status"] == FAIL for entry in found["checks"])


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The document for people."""
    for entry in found["checks"]:
        measured = " ".join(filter(None, (entry["measured"], entry["unit"])))
        said = "; ".join(filter(None, (measured, entry["message"])))
        yield "{:<4}  {:<16} {}  {}".format(entry["status"], entry["name"], entry["target"], said).rstrip()
    yield ""
    yield "{}: {}".format(status_of(found["checks"]), "ended early" if found["result"]["ended"] else "ran to its end")


class Stop:
    """Takes SIGTERM (Slurm: cancelled, preempted, out of time) and SIGINT as a wish to end now."""

    def __init__(self) -> None:
        self._reason = ""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def reason(self) -> str:
        """Why the load is to end; '' while nobody wants it."""
        return self._reason

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        words = {signal.SIGTERM: "cancelled or preempted (SIGTERM)", signal.SIGINT: "interrupted (SIGINT)"}
        self._reason = self._reason or words[signal.Signals(number)]
