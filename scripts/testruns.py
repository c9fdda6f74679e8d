"""Programs that run side by side, what each of them printed, and where their time went; for scripts/run-tests."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".pytest_cache"
# where the time goes, for whoever is asked to make it less
OPTIONS = ("-v", "--durations=40", "--durations-min=5")
# a third of their weight
LESS = 5
PAUSE_S = 0.2
TICKS = os.sysconf("SC_CLK_TCK")
# as pytest's short summary names tests
FAULT = re.compile(r"(FAILED|ERROR) \S")
COUNT = re.compile(r"(\d+) (passed|failed|skipped|xfailed|xpassed|error)")


def never(_line: str) -> bool:
    """Nothing is shown before the end: others print too."""
    return False


def progress(line: str) -> bool:
    """Tests of clusters are long: that one has ended is shown at once."""
    return line.startswith("tests/") and line.rstrip().endswith("%]")


def always(_line: str) -> bool:
    """No other run prints."""
    return True


class Run:
    """A program that runs in parallel with others; its output is buffered, except what is shown `at_once`."""

    def __init__(self, name: str, *argv: str, at_once: Callable[[str], bool] = never) -> None:
        self.name = name
        self.summary = ""
        self.started = time.monotonic()
        self.ended = 0.0
        # with what it has started and waited for: machines are not among that
        self.cpu_s = 0.0
        self.faults: list[str] = []
        self._kept: list[str] = []
        self._at_once = at_once
        self._process = subprocess.Popen(
            argv,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C is for this script, which ends all in order
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.summary = line.strip() or self.summary
            if FAULT.match(line):
                self.faults.append(line.strip())
            if self._at_once(line):
                print(line, end="", flush=True)
            else:
                self._kept.append(line)

    def goes_on(self) -> bool:
        """Whether it still runs; its buffered output is printed once it has ended."""
        before = cpu_of_children()
        if not self.ended and self._process.poll() is not None:
            self.cpu_s = cpu_of_children() - before
            self.ended = time.monotonic()
            # something that it started may live on and hold the pipe open
            self._reader.join(timeout=10)
            if self._kept:
                print(f"\n{self.name}:\n{''.join(self._kept)}", end="", flush=True)
        return not self.ended

    def status(self) -> int:
        """Its exit status; waits for it."""
        return self._process.wait()

    def failed(self) -> list[str]:
        """Ids of its tests that failed."""
        return []

    def module_seconds(self) -> Mapping[str, float]:
        """How long each module took."""
        return {}

    def give_way(self) -> None:
        """From now on others come first, if they want to."""
        if self._process.poll() is None:
            os.setpriority(os.PRIO_PGRP, self._process.pid, LESS)

    def interrupt(self) -> None:
        """As Ctrl-C does, where it has not ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)


class Tests(Run):
    """A run of pytest."""

    def __init__(self, name: str, *arguments: str, at_once: Callable[[str], bool] = never) -> None:
        self._cache = CACHE / name / "v" / "cache"
        for what in ("lastfailed", "module_seconds"):
            (self._cache / what).unlink(missing_ok=True)
        pytest_argv = (sys.executable, "-u", "-m", "pytest", "-o", f"cache_dir={CACHE / name}")
        super().__init__(name, *pytest_argv, *OPTIONS, *arguments, at_once=at_once)

    def interrupt(self) -> None:
        """The same for pytest alone: it needs the processes it started to remove its labs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def failed(self) -> list[str]:
        """As pytest's cache plugin stores them."""
        return sorted(self._of_cache("lastfailed"))

    def module_seconds(self) -> Mapping[str, float]:
        """As tests/conftest.py stores it."""
        return self._of_cache("module_seconds")

    def _of_cache(self, what: str) -> dict[str, float]:
        try:
            durations: dict[str, float] = json.loads((self._cache / what).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return durations


def cpu_of_children() -> float:
    """Seconds of CPU of all programs that have ended and were asked for their status here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def none_left() -> Iterator[list[Run]]:
    """A list for runs: none of them goes on after the block."""
    runs: list[Run] = []
    try:
        yield runs
    finally:
        for run in runs:
            run.interrupt()
        for run in runs:
            run.status()


def under_way(runs: Sequence[Run]) -> bool:
    """Whether any of them is, a moment later; each that has ended meanwhile is shown."""
    time.sleep(PAUSE_S)
    return bool([run for run in runs if run.goes_on()])


class Moment:
    """When it was, and for how many seconds this host's processors were busy, and there, until then."""

    def __init__(self) -> None:
        self.time = time.monotonic()
        ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
        self.there = sum(ticks)
        # 3 and 4 are idle, and idle while a disk was waited for
        self.busy = self.there - sum(ticks[3:5])


def summaries(runs: Sequence[Run], moments: Sequence[Moment], left_out: Sequence[str]) -> None:
    """Where the time went, when each run was, how it ended, what did not run, what failed, and last their sum."""
    seconds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for run in runs:
        seconds.update(run.module_seconds())
        counts.update({word: int(number) for number, word in COUNT.findall(run.summary)})
    print("\nmodules by seconds, in all runs:\n")
    for module, module_seconds in seconds.most_common():
        print(f"{module_seconds:6.0f} {module}")
    start = moments[0].time
    print("\nprocessors:\n")
    for one, other in pairwise(moments):
        busy, there = other.busy - one.busy, max(1, other.there - one.there)
        span = f"{clock(one.time - start)} to {clock(other.time - start)}"
        print(f"{span} {100 * busy / there:.0f}% busy, {busy / TICKS:.0f} s of CPU")
    print("\nruns, with their CPU but for that of their machines:\n")
    for run in sorted(runs, key=lambda run: run.started):
        span = f"{clock(run.started - start)} to {clock(run.ended - start)}"
        print(f"{span} {run.cpu_s:6.1f} s {run.name}: {run.summary.strip('= ')}")
    if left_out:
        print(f"\nleft out, {len(left_out)} thorough tests; `make test-thorough` runs them:\n")
        print("\n".join(left_out))
        counts["deselected"] = len(left_out)
    bad = [run for run in runs if run.status()]
    if bad:
        # the end of a log is what is read, and often all that is stored
        print("\nfailed:\n")
        for run in bad:
            print("\n".join(run.faults or [f"{run.name}: {run.summary.strip('= ')}"]))
    total = ", ".join(f"{number} {word}" for word, number in counts.items())
    whole = moments[-1].time - start
    # in pytest's form, for whatever reads it
    print(f"\n{f' {total} in {whole:.2f}s ({timedelta(seconds=int(whole))}) ':=^80}", flush=True)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:2}:{int(seconds) % 60:02}"
