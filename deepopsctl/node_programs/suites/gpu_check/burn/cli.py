"""The command line of the sustained load: `gpucheck --burn SECONDS`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Callable

from ..results import FAIL, PASS, WARN, status_of
from .evaluation import evaluate_burn
from .node import Order, burn_node

COMMAND = "gpucheck-burn"
SCHEMA = 1


def burn(options: Any, report_progress: Callable[[str], None]) -> dict[str, Any]:
    """Load this node; returns the document of --json. Ends early on SIGTERM and Ctrl-C, and reports that."""
    stop = Stop()
    order = Order(options.burn, options.memory_share, options.busy_too, not options.without_gpus, stop.reason)
    result = burn_node(order, report_progress)
    return document(result, evaluate_burn(result, options.expect))


def document(result: dict[str, Any], checks: list[dict[str, str]]) -> dict[str, Any]:
    """What --json prints."""
    # no passed check is not success, nor is a run that ended early
    good = status_of(checks) in (PASS, WARN) and not result["ended"]
    return {"schema": SCHEMA, "command": COMMAND, "ok": good, "result": result, "checks": checks}


def failed(report: dict[str, Any]) -> bool:
    """Whether a check failed."""
    return any(entry["status"] == FAIL for entry in report["checks"])


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The document for people."""
    for entry in report["checks"]:
        measured = " ".join(filter(None, (entry["measured"], entry["unit"])))
        details = "; ".join(filter(None, (measured, entry["message"])))
        yield f"{entry['status']:<4}  {entry['name']:<16} {entry['target']}  {details}".rstrip()
    yield ""
    yield f"{status_of(report['checks'])}: {'ended early' if report['result']['ended'] else 'ran to its end'}"


class Stop:
    """Records SIGTERM (Slurm: cancelled, preempted, out of time) and SIGINT as a request to stop."""

    def __init__(self) -> None:
        self._reason = ""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def reason(self) -> str:
        """Why the load has to end; '' while it may continue."""
        return self._reason

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        words = {signal.SIGTERM: "cancelled or preempted (SIGTERM)", signal.SIGINT: "interrupted (SIGINT)"}
        self._reason = self._reason or words[signal.Signals(number)]
