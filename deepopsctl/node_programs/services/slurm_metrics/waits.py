"""Wait times of jobs that started in the last hour; stored here, as slurmctld drops jobs minutes after their end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from .jobs import Job

WINDOW_S = 3600
QUANTILES = (0.5, 0.9)
# in an hour with more starts only the last ones count
KEPT = 50_000


class Waits:
    """Filled round after round; a start is counted once, however often it is seen."""

    def __init__(self) -> None:
        self._starts: OrderedDict[tuple[str, int], tuple[str, int]] = OrderedDict()

    def see(self, jobs: Iterable[Job], now: float) -> None:
        """Take in what started in the last hour, forget what is older."""
        for job in jobs:
            # a requeued job starts once more, and waits once more
            if job.has_started and now - WINDOW_S <= job.start <= now and job.eligible:
                self._starts[job.id, job.start] = (job.partition, max(0, job.start - job.eligible))
        for key in [key for key in self._starts if key[1] < now - WINDOW_S]:
            del self._starts[key]
        while len(self._starts) > KEPT:
            self._starts.popitem(last=False)

    def by_partition(self) -> Mapping[str, list[float]]:
        """The waits in seconds, in order; nothing of partitions where nothing started."""
        seconds_by_partition: dict[str, list[float]] = {}
        for partition, wait in self._starts.values():
            seconds_by_partition.setdefault(partition, []).append(float(wait))
        return {name: sorted(waits) for name, waits in seconds_by_partition.items()}


def quantile_of(ordered: list[float], quantile: float) -> float:
    """The shortest wait that at least that part of all did not exceed: one that some job really had."""
    # not by rounding: 0.9 of 10 is the ninth
    rank = -(-len(ordered) * int(quantile * 100) // 100)
    return ordered[max(0, rank - 1)]
