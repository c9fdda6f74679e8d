"""Programs that run side by side, what each of them printed, and where their time went; for scripts/run-tests."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".pytest_cache"
# where the time goes, for those who want to make it less
OPTIONS = ("--durations=40", "--durations-min=5")
# a tenth of their weight
LESS = 10
PAUSE_S = 0.2
# a failed run names no more than these in its last 20 lines, each no longer
MANY = 5
LONGEST = 300
SOME_FAILED = 1
TICKS = os.sysconf("SC_CLK_TCK")
# as pytest's short summary names tests
FAULT = re.compile(r"(FAILED|ERROR) \S")
TOTAL = re.compile(r"^=+ .* in \d+\.\d\ds")
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


class Run(ABC):
    """A program that runs in parallel with others; its output is buffered, except what is shown `at_once`."""

    def __init__(self, name: str, *argv: str, at_once: Callable[[str], bool] = never) -> None:
        self.name = name
        self.platform = ""
        self.summary = ""
        self.started = time.monotonic()
        self.ended = 0.0
        # because another one failed
        self.stopped = False
        # with what it has started and collected: machines are not among that
        self.cpu_s = 0.0
        self.faults: list[str] = []
        self.counts: Mapping[str, int] = {}
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
            if TOTAL.search(line):
                self.counts = {word: int(number) for number, word in COUNT.findall(line)}
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

    @abstractmethod
    def again(self) -> str:
        """The command that runs only what failed."""

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


class Make(Run):
    """A target of the Makefile, with its variables."""

    def __init__(self, name: str, *words: str) -> None:
        self._words = words
        super().__init__(name, "make", "--no-print-directory", *words)

    def again(self) -> str:
        """All of it."""
        return shlex.join(["make", *self._words])


class Tests(Run):
    """A run of pytest."""

    def __init__(self, name: str, *arguments: str, at_once: Callable[[str], bool] = never) -> None:
        self._arguments = arguments
        self._cache = CACHE / name / "v" / "cache"
        for what in ("lastfailed", "module_seconds"):
            (self._cache / what).unlink(missing_ok=True)
        pytest_argv = (sys.executable, "-u", "-m", "pytest", "-o", f"cache_dir={CACHE / name}")
        # a line for each of thousands of tests is too much to read
        verbose = () if at_once is never else ("-v",)
        super().__init__(name, *pytest_argv, *verbose, *OPTIONS, *arguments, at_once=at_once)

    def interrupt(self) -> None:
        """The same for pytest alone: it needs the processes it started to remove its labs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def again(self) -> str:
        """The tests that failed; their modules where tests build on each other, or are many."""
        failed = sorted(self._of_cache("lastfailed"))
        if len(failed) > MANY or any(test.startswith("tests/lab/") for test in failed):
            failed = sorted({test.partition("::")[0] for test in failed})
        if not 0 < len(failed) <= MANY:
            return shlex.join([".venv/bin/pytest", *self._arguments])
        marks = self._arguments[:2] if self._arguments[0] == "-m" else ()
        return shlex.join([".venv/bin/pytest", *marks, *failed])

    def module_seconds(self) -> Mapping[str, float]:
        """As tests/conftest.py stores it."""
        return self._of_cache("module_seconds")

    def _of_cache(self, what: str) -> dict[str, float]:
        try:
            durations: dict[str, float] = json.loads((self._cache / what).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return durations


@dataclass(frozen=True)
class Suite:
    """A run that is to be: its name, the nodes it has, and its start."""

    name: str
    platform: str
    start: Callable[[], Run]


class Lanes:
    """Suites of which some run at a time, one after the other in each lane."""

    def __init__(self, runs: list[Run], count: int, suites: Sequence[Suite], *, less: bool = False) -> None:
        self.waiting = deque(suites)
        self._runs = runs
        self._count = count
        self._less = less
        self._taken: list[Run] = []

    def fill(self) -> None:
        """Start what waits for a lane that has become free."""
        while self.waiting and len([run for run in self._taken if not run.ended]) < self._count:
            suite = self.waiting.popleft()
            run = suite.start()
            run.platform = suite.platform
            if self._less:
                run.give_way()
            self._taken.append(run)
            self._runs.append(run)

    def go_on(self) -> bool:
        """Whether anything runs or waits; each run that has ended meanwhile is shown."""
        return bool([run for run in self._taken if run.goes_on()] or self.waiting)

    def some_failed(self) -> bool:
        """Whether one that has ended did."""
        return any(run.ended and run.status() for run in self._taken)

    def stop(self) -> None:
        """Start no more, and end what runs."""
        self.waiting.clear()
        for run in self._taken:
            if not run.ended and not run.stopped:
                run.stopped = True
                run.interrupt()


def cpu_of_children() -> float:
    """Seconds of CPU of all programs that have ended and were asked for their status here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def none_left() -> Iterator[list[Run]]:
    """A list for runs: none of them continues after the block."""
    runs: list[Run] = []
    try:
        yield runs
    finally:
        for run in runs:
            run.interrupt()
        for run in runs:
            run.status()


def under_way(*lanes: Lanes) -> bool:
    """Whether anything runs or waits in any of them, a moment after free lanes were filled."""
    for each in lanes:
        each.fill()
    time.sleep(PAUSE_S)
    return bool([each for each in lanes if each.go_on()])


class Moment:
    """When it was, and for how many seconds this host's processors were busy, and there, until then."""

    def __init__(self) -> None:
        self.time = time.monotonic()
        ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
        self.there = sum(ticks)
        # 3 and 4 are idle, and idle while waiting for a disk
        self.busy = self.there - sum(ticks[3:5])


def summaries(runs: Sequence[Run], moments: Sequence[Moment], left_out: Mapping[str, int]) -> int:
    """Where the time went, how each run ended, what failed and how to run only that; the exit status of all."""
    seconds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for run in runs:
        seconds.update(run.module_seconds())
        counts.update(run.counts)
    print("\nmodules by seconds, in all runs:\n")
    for module, module_seconds in seconds.most_common():
        print(f"{module_seconds:6.0f} {module}")
    start = moments[0].time
    print("\nprocessors:\n")
    for one, other in pairwise(moments):
        busy, there = other.busy - one.busy, max(1, other.there - one.there)
        span = f"{clock(one.time - start)} to {clock(other.time - start)}"
        print(f"{span} {100 * busy / there:.0f}% busy, {busy / TICKS:.0f} s of CPU")
    if left_out:
        counts["deselected"] = sum(left_out.values())
        print(
            f"\nleft out, {counts['deselected']} tests of labs and all virtual machines; `make test-all` runs them:\n"
        )
        for module, number in left_out.items():
            print(f"{number:4} {module}")
    print("\nruns, with their CPU but for that of their machines:\n")
    for run in sorted(runs, key=lambda run: run.started):
        span = f"{clock(run.started - start)} to {clock(run.ended - start)}"
        ending = "stopped, as another one failed" if run.stopped else run.summary.strip("= ")
        print(f"{span} {run.cpu_s:6.1f} s {run.name}: {ending}")
    bad = [run for run in runs if run.status() and not run.stopped]
    if bad:
        # the end of a log is what is read, and often all that is stored
        print("\nfailed:\n")
        lines = [line for run in bad for line in run.faults or [f"{run.name}: {run.summary.strip('= ')}"]]
        more = [f"and {len(lines) - MANY} more, above"] if len(lines) > MANY else []
        print("\n".join([line[:LONGEST] for line in lines[:MANY]] + more))
        print("\nonly these again:\n")
        print("\n".join(run.again() for run in bad))
    total = ", ".join(f"{number} {word}" for word, number in counts.items())
    whole = moments[-1].time - start
    # in pytest's form, for whatever reads it
    print(f"\n{f' {total} in {whole:.2f}s ({timedelta(seconds=int(whole))}) ':=^80}", flush=True)
    return max((run.status() for run in bad), key=lambda status: status != SOME_FAILED, default=0)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:2}:{int(seconds) % 60:02}"
