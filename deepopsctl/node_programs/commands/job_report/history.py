"""Jobs that have ended, and what they used together: one's own, or those of accounts, as far as Slurm shows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..._shared import slurm_client, slurm_output
from . import asking, records, summary
from .asking import Run
from .records import DELIMITER, Job

ENDED = "BOOT_FAIL,CANCELLED,COMPLETED,DEADLINE,FAILED,NODE_FAIL,OUT_OF_MEMORY,PREEMPTED,TIMEOUT"
MOST_DAYS = 366
_IDS = ("JobID", "End")
_SUMS = ("User", "Account", "ElapsedRaw", "AllocCPUS", "AllocTRES", "AdminComment")
_HOUR_S = 3600


@dataclass(frozen=True)
class Sum:
    """What some jobs had and used, in hours of cores and GPUs; monitoring has seen a part of them."""

    jobs: int = 0
    cpu_hours: float = 0.0
    gpu_hours: float = 0.0
    gpu_hours_seen: float = 0.0
    gpu_hours_busy: float = 0.0

    @property
    def gpu_hours_idle(self) -> float:
        """What was allocated and not busy, of what monitoring has seen."""
        return self.gpu_hours_seen - self.gpu_hours_busy


def whose(accounts: Sequence[str]) -> list[str]:
    """The option of sacct for the jobs of accounts; one's own without any."""
    return ["--allusers", "--accounts=" + ",".join(accounts)] if accounts else []


def newest(run: Run, days: int, most: int, accounts: Sequence[str] = ()) -> tuple[list[Job], bool]:
    """The newest jobs that have ended, and whether there are more; Slurm is asked about a short time first."""
    ended: list[tuple[int, str]] = []
    for hours in (1, 24, 24 * days):
        rows = _rows(run(_sacct(_IDS, hours, accounts)), _IDS)
        ended = [(slurm_output.whole(end) or 0, job) for job, end in rows if records.IS_ID.fullmatch(job)]
        if len(ended) > most or hours >= 24 * days:
            break
    chosen = [job for _, job in sorted(ended, reverse=True)[:most]]
    if not chosen:
        return [], False
    which = ["--jobs=" + ",".join(chosen), *(["--allusers"] if accounts else [])]
    jobs = {job.id: job for job in records.read(run(asking.sacct(records.FIELDS, *which)))}
    names = records.read_names(run(asking.sacct(records.NAME_FIELDS, "--allocations", *which)))
    return [replace(jobs[job], name=names.get(job, "")) for job in chosen if job in jobs], len(ended) > most


def sums(run: Run, days: int, accounts: Sequence[str] = ()) -> dict[tuple[str, str], Sum]:
    """What each user has used in each account."""
    total: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 5)
    for user, account, elapsed, cpus, tres, comment in _rows(run(_sacct(_SUMS, 24 * days, accounts)), _SUMS):
        hours, gpus = (slurm_output.whole(elapsed) or 0) / _HOUR_S, _gpus(tres)
        seen, busy = summary.gpus_seen(comment) if gpus else (0, 0.0)
        had = (1, (slurm_output.whole(cpus) or 0) * hours, gpus * hours, seen * hours, busy * hours)
        key = _clean(account), _clean(user)
        total[key] = [sum(each) for each in zip(total[key], had)]
    return {key: Sum(int(jobs), *hours) for key, (jobs, *hours) in total.items()}


# of 100,000 jobs, most have the names, and ask for what others did
_clean = lru_cache(maxsize=1024)(slurm_output.clean)


@lru_cache(maxsize=1024)
def _gpus(tres: str) -> int:
    return slurm_output.whole(slurm_output.tres(tres).get("gres/gpu", "")) or 0


def _sacct(fields: Sequence[str], hours: int, accounts: Sequence[str]) -> list[str]:
    window = ["--allocations", "--state=" + ENDED, f"--starttime=now-{hours}hours", "--endtime=now"]
    return asking.sacct(fields, *window, *whose(accounts))


def _rows(text: str, fields: Sequence[str]) -> Iterator[list[str]]:
    for line in text.split("\n"):
        words = line.split(DELIMITER)
        if len(words) == len(fields):
            yield words


def accounts_of(user: str, run: Run) -> list[str]:
    """The accounts that a user is in, and those that the user coordinates."""
    member = run(slurm_client.sacctmgr("association", "where", "user=" + user, "format=account"))
    coordinated = run(slurm_client.sacctmgr("user", "where", "name=" + user, "withcoord", "format=coordinators"))
    names = [*member.split(), *coordinated.replace(",", " ").split()]
    return sorted({slurm_output.clean(name) for name in names})


def numbers(total: Sum) -> dict[str, Any]:
    """A sum as JSON has it."""
    return {
        "jobs": total.jobs,
        "cpu_hours": round(total.cpu_hours, 2),
        "gpu_hours": round(total.gpu_hours, 2),
        "gpu_hours_seen": round(total.gpu_hours_seen, 2),
        "gpu_hours_busy": round(total.gpu_hours_busy, 2),
        "gpu_hours_idle": round(total.gpu_hours_idle, 2),
    }
