"""Runs the collectors, each with its own thread and text file: one that hangs or fails does not affect the others."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..._shared import atomic_file
from ..._shared.prometheus_text import GAUGE
from .samples import Collect, Collector, Metric, Sample, render

# After so many intervals without a result, a collector's last metrics are removed.
PATIENCE = 4
SELF: Mapping[str, Metric] = {
    "deepops_nodemetrics_up": Metric(GAUGE, "Whether this collector's last run succeeded."),
    "deepops_nodemetrics_collect_seconds": Metric(GAUGE, "How long this collector's last run took."),
}


@dataclass
class RunningCollector:
    """State of a running collector."""

    name: str
    collector: Collector
    settings: Mapping[str, Any]
    path: str
    up: bool = False
    seconds: float = 0.0
    since: float = field(default_factory=time.monotonic)
    last_message: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Daemon:
    """All enabled collectors."""

    def __init__(
        self, directory: str, interval_s: float, collectors: Mapping[str, Collector], settings: Mapping[str, Any]
    ) -> None:
        self._interval_s = interval_s
        self._path = _path(directory, "self")
        self._collectors = [
            RunningCollector(name, collectors[name], settings[name], _path(directory, name))
            for name in collectors
            if name in settings
        ]
        self._stop = threading.Event()

    def collect_until_stopped(self) -> None:
        """Run until `stop`, then remove the files."""
        for each in self._collectors:
            # a thread in a call that hangs must not block the program's exit
            threading.Thread(target=self._work, args=(each,), name=each.name, daemon=True).start()
        while not self._stop.wait(self._interval_s):
            atomic_file.write(self._path, render(SELF, self._state()))
        for each in self._collectors:
            with each.lock:
                atomic_file.discard(each.path)
        atomic_file.discard(self._path)

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()

    def _work(self, each: RunningCollector) -> None:
        collect = None
        while not self._stop.is_set():
            each.since = time.monotonic()
            try:
                collect = collect or each.collector.make(each.settings)
                self._collect(each, collect)
            except Exception as error:  # noqa: BLE001 - a collector's fault is its own
                each.up = False
                atomic_file.discard(each.path)
                _log(each, f"{type(error).__name__}: {error}")
            self._stop.wait(max(0.0, self._interval_s - (time.monotonic() - each.since)))

    def _collect(self, each: RunningCollector, collect: Collect) -> None:
        text = render(each.collector.metrics, collect())
        with each.lock:
            if not self._stop.is_set():
                atomic_file.write(each.path, text)
        each.seconds, each.up = time.monotonic() - each.since, True
        _log(each, "")

    def _state(self) -> list[Sample]:
        samples = []
        for each in self._collectors:
            hangs = time.monotonic() - each.since > PATIENCE * self._interval_s
            if hangs:
                atomic_file.discard(each.path)
                _log(each, f"has hung for {time.monotonic() - each.since:.0f} s")
            label = {"collector": each.name}
            samples.append(Sample("deepops_nodemetrics_up", float(each.up and not hangs), label))
            samples.append(Sample("deepops_nodemetrics_collect_seconds", each.seconds, label))
        return samples


def _path(directory: str, name: str) -> str:
    return os.path.join(directory, f"nodemetrics-{name}.prom")


def _log(each: RunningCollector, what: str) -> None:
    """Log a message when it has changed."""
    if what != each.last_message:
        sys.stderr.write(f"{each.name}: {what or 'works again'}\n")
        each.last_message = what


def once(collectors: Mapping[str, Collector], settings: dict[str, Any]) -> str:
    """The metrics of all collectors, once."""
    texts = [
        render(collectors[name].metrics, collectors[name].make(settings[name])())
        for name in collectors
        if name in settings
    ]
    return "".join(texts)
