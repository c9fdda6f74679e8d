"""Stores a summary of each ended job in the accounting, from monitoring's data, for job-report.

Only for jobs without an AdminComment. No job is queried twice: the comment marks those that are done, and
a time stamp is saved across restarts.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Callable

from ..._shared import atomic_file, slurm_output
from . import records, summary
from .asking import Run
from .prometheus import PrometheusError, Query, summarise
from .summary import Summary

# no state that a job can be in again without a record of its own
ENDED = "COMPLETED,FAILED,TIMEOUT,CANCELLED,OUT_OF_MEMORY,DEADLINE"
# Prometheus has scraped what there was, and its rules have run
SETTLE_S = 45
# records may be late: slurmctld queues them while slurmdbd is down
OVERLAP_S = 900
FIRST_S = 3600
SHORTEST_S = 30
MOST_JOBS, MOST_S = 200, 50
_REMEMBERED = 10000
_IDS = ("JobIDRaw", "End")
_FIELDS = ("JobIDRaw", "State", "End", "ElapsedRaw", "AdminComment")


@dataclass(frozen=True)
class Ended:
    """A job that has ended."""

    number: str
    end: int
    elapsed: int


class Keeper:
    """One round after the other."""

    def __init__(self, state: str, run: Run, query: Query, now: Callable[[], float] = time.time) -> None:
        self._state, self._run, self._query, self._now = state, run, query, now
        # jobs without data, which get no comment
        self._nothing: OrderedDict[tuple[str, int], None] = OrderedDict()

    def round(self) -> int:
        """Summaries for what has ended since; returns how many were written."""
        now = int(self._now())
        since = self._since(now)
        jobs = [job for job in self._candidates(now - since + OVERLAP_S) if job.end <= now - SETTLE_S]
        started, written = time.monotonic(), 0
        for place, job in enumerate(jobs):
            if place >= MOST_JOBS or time.monotonic() - started > MOST_S:
                # the next round continues here
                self._remember(job.end)
                return written
            written += self._write_summary(job)
        self._remember(now - SETTLE_S)
        return written

    def _write_summary(self, job: Ended) -> int:
        job_summary = self._summary(job)
        if job_summary == Summary():
            self._nothing[(job.number, job.end)] = None
            while len(self._nothing) > _REMEMBERED:
                self._nothing.popitem(last=False)
            return 0
        where = ["where", "jobid=" + job.number]
        self._run(
            ["sacctmgr", "--immediate", "modify", "job", *where, "set", "AdminComment=" + summary.write(job_summary)]
        )
        return 1

    def _summary(self, job: Ended) -> Summary:
        try:
            return summarise(job.number, job.end, job.elapsed, self._query)
        except PrometheusError:
            # of this job alone (too many samples) where Prometheus answers this; else the next round tries again
            self._query("vector(1)", job.end)
            return Summary()

    def _candidates(self, seconds: int) -> list[Ended]:
        """Jobs without a comment, in the order in which they ended; of a job that ran again its last run alone."""
        window = ["--allusers", "--state=" + ENDED, f"--starttime=now-{seconds}", "--endtime=now"]
        numbers = [row[0] for row in self._rows(window, _IDS) if slurm_output.whole(row[0])]
        jobs = []
        # a command line has an end
        for start in range(0, len(numbers), 500):
            which = "--jobs=" + ",".join(numbers[start : start + 500])
            jobs += [job for row in self._rows([which], _FIELDS) for job in self._wanted(row)]
        return sorted(jobs, key=lambda job: job.end)

    def _wanted(self, row: Sequence[str]) -> Iterator[Ended]:
        number, state, end, elapsed, comment = row[0], row[1].split(" ")[0], *map(slurm_output.whole, row[2:4]), row[4]
        if state not in ENDED.split(",") or comment.strip() or not slurm_output.whole(number) or end is None:
            return
        if (elapsed or 0) >= SHORTEST_S and (number, end) not in self._nothing:
            yield Ended(number, end, elapsed or 0)

    def _rows(self, which: Sequence[str], fields: Sequence[str]) -> Iterator[list[str]]:
        argv = ["sacct", "--allocations", "--parsable2", "--noheader", "--delimiter=" + records.DELIMITER]
        for line in self._run([*argv, *which, "--format=" + ",".join(fields)]).split("\n"):
            words = line.split(records.DELIMITER)
            if len(words) == len(fields):
                yield words

    def _since(self, now: int) -> int:
        try:
            with open(self._state, encoding="utf-8") as stream:
                until = int(json.load(stream)["until"])
        except (OSError, ValueError, KeyError, TypeError):
            return now - FIRST_S
        # a clock that was set back, or an old file
        return min(max(until, now - 30 * 86400), now)

    def _remember(self, until: int) -> None:
        os.makedirs(os.path.dirname(self._state), exist_ok=True)
        atomic_file.write(self._state, json.dumps({"until": until}))
