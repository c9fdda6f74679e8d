"""The main loop: query, decide, act, and write metrics and log lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..._shared import atomic_file
from ..._shared.prometheus_text import COUNTER, GAUGE, Families
from ..._shared.slurm_client import NoAnswerError
from . import slurm
from .alertmanager import AskError, ask
from .decide import Decision, HealthyTimers, Limits, decide
from .settings import Settings

NOTHING = Decision({}, (), (), (), {})
_HELP: Mapping[str, str] = {
    "up": "Whether Alertmanager and Slurm answered in the last round.",
    "drained": "Nodes that are drained because of an alert.",
    "held_back": "Nodes that an alert would drain, were the limit not reached.",
    "limit": "How many nodes alerts may drain at once.",
    "drains_total": "Drains since the program started.",
    "resumes_total": "Resumes since the program started.",
}


@dataclass
class Rounds:
    """State of the program."""

    settings: Settings
    timers: HealthyTimers = field(default_factory=HealthyTimers)
    stop: threading.Event = field(default_factory=threading.Event)
    drains: int = 0
    resumes: int = 0
    last: Decision = NOTHING
    reported: dict[str, str] = field(default_factory=dict)

    def drain_until_stopped(self) -> None:
        """Run until `stop` is set; then remove the metrics, as they would become stale."""
        while not self.stop.is_set():
            self._write_metrics(up=self.round())
            self.stop.wait(self.settings.interval_s)
        atomic_file.discard(self.settings.textfile)

    def _write_metrics(self, *, up: bool) -> None:
        """A full disk must not end the program: its timers would start again, and no node be resumed."""
        problem = ""
        try:
            atomic_file.write(self.settings.textfile, render(self.values(up=up)))
        except OSError as error:
            problem = f"no metrics were written: {error}"
        self._log_change("metrics", problem)

    def round(self) -> bool:
        """One round; True if all queries and actions succeeded."""
        try:
            # Slurm last: actions depend on its answer
            alerts = ask(self.settings)
            nodes = slurm.nodes()
            limits = Limits(self.settings.limit, self.settings.resume_after_s)
        except (AskError, NoAnswerError) as error:
            self.timers.reset()
            self._log_change("trouble", str(error))
            return False
        self.last = decide(alerts, nodes, self.timers, limits, time.monotonic())
        refusals = self._do(self.last)
        self._log_change("trouble", "; ".join(refusals))
        self._log_change(
            "limit",
            f"not drained, for the limit of {self.settings.limit} is reached: {' '.join(self.last.held_back)}"
            if self.last.held_back
            else "",
        )
        return not refusals

    def values(self, *, up: bool) -> dict[str, int]:
        """Values of the metrics; without an answer there are none about nodes."""
        values = {"up": int(up), "limit": self.settings.limit}
        if up:
            values["drained"] = len(self.last.drained_by_alert) + len(self.last.drains) - len(self.last.resumes)
            values["held_back"] = len(self.last.held_back)
        return {**values, "drains_total": self.drains, "resumes_total": self.resumes}

    def _do(self, decision: Decision) -> list[str]:
        """What Slurm refused; a node of which it does keeps no others from their turn."""
        refusals = []
        for name, reason in decision.drains.items():
            try:
                slurm.drain(name, reason)
            except NoAnswerError as error:
                refusals.append(str(error))
                continue
            self.drains += 1
            _log(f"drained {name}: {reason}")
        for name in decision.resumes:
            try:
                resumed = slurm.resume(name)
            except NoAnswerError as error:
                refusals.append(str(error))
                continue
            if resumed:
                self.resumes += 1
                _log(f"resumed {name}: its alert has ended")
            self.timers.clear.pop(name, None)
        for name, why in decision.waiting.items():
            self._log_change(name, f"{name} stays drained: {why}")
        for name in set(self.reported) - set(decision.waiting) - {"trouble", "limit", "metrics"}:
            del self.reported[name]
        return refusals

    def _log_change(self, about: str, what: str) -> None:
        """Log a message when it has changed."""
        if what and what != self.reported.get(about):
            _log(what)
        self.reported[about] = what


def _log(what: str) -> None:
    sys.stderr.write(what + "\n")
    sys.stderr.flush()


def render(values: Mapping[str, int]) -> str:
    """The text of the file."""
    families = Families()
    for key, value in values.items():
        metric_type = COUNTER if key.endswith("_total") else GAUGE
        families.family("deepops_alertdrain_" + key, _HELP[key], metric_type).set(value)
    return families.text()
