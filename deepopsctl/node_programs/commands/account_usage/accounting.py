"""Jobs and shares as sacct and sacctmgr print them, in reference GPU units (RGU). Also for `deepopsctl usage`.

Slurm stores a job's billing in thousandths of an RGU, in partitions without GPUs in thousandths of a core.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

# billing units of one RGU, or of one core where there are no GPUs
PER_UNIT = 1000
HOURS_PER_YEAR = 8760
SHARES = "Account,ParentName,User,Share"
JOBS = "Account,User,Partition,ElapsedRaw,AllocTRES"
_SECONDS_PER_HOUR = 3600
_BILLING = re.compile(r"(?:^|,)billing=([0-9]+)(?:,|$)")


@dataclass(frozen=True)
class Use:
    """What some jobs used: how many they were, RGU-hours, and core-hours in partitions without GPUs."""

    jobs: int = 0
    rgu_hours: float = 0.0
    core_hours: float = 0.0

    def __add__(self, other: Use) -> Use:
        """Both together."""
        return Use(self.jobs + other.jobs, self.rgu_hours + other.rgu_hours, self.core_hours + other.core_hours)

    @property
    def rgu_years(self) -> float:
        """RGU-years: one RGU for 8,760 hours."""
        return self.rgu_hours / HOURS_PER_YEAR

    @property
    def core_years(self) -> float:
        """Core-years."""
        return self.core_hours / HOURS_PER_YEAR


Used = dict[str, dict[str, Use]]


def read_jobs(lines: Iterable[str], of_gpus: Collection[str]) -> Used:
    """sacct's lines of JOBS by account and user; `of_gpus` are partitions with GPUs."""
    used: defaultdict[str, defaultdict[str, Use]] = defaultdict(lambda: defaultdict(Use))
    for line in lines:
        account, user, partition, seconds, tres = line.split("|")
        billing = _BILLING.search(tres)
        if billing is None or not seconds.isdecimal():
            # waiting, or cancelled before it started
            continue
        hours = int(billing[1]) * int(seconds) / PER_UNIT / _SECONDS_PER_HOUR
        with_gpus = partition in of_gpus
        used[account][user] += Use(1, hours if with_gpus else 0.0, 0.0 if with_gpus else hours)
    return {account: dict(users) for account, users in used.items()}


def read_shares(lines: Iterable[str]) -> dict[str, tuple[str, float]]:
    """sacctmgr's lines of SHARES: the parent and the share of the cluster of each account."""
    parents: dict[str, str] = {}
    raw: dict[str, float] = {}
    for line in lines:
        account, parent, user, share = line.split("|")
        # `parent` as a share: users of this account count as the parent's
        if not user and account != "root":
            parents[account] = "" if parent == "root" else parent
            raw[account] = float(share) if share.isdecimal() else 0.0
    siblings: defaultdict[str, float] = defaultdict(float)
    for account, parent in parents.items():
        siblings[parent] += raw[account]
    shares = {"": 1.0}

    def share_of(account: str) -> float:
        if account not in shares:
            parent = parents[account]
            shares[account] = share_of(parent) * raw[account] / siblings[parent] if siblings[parent] else 0.0
        return shares[account]

    return {account: (parents[account], share_of(account)) for account in sorted(parents)}


def total_of(name: str, parents: dict[str, str], used: Used) -> dict[str, Use]:
    """What each user has used in an account and all below it."""
    total: defaultdict[str, Use] = defaultdict(Use)
    for account, users in used.items():
        above = account
        while above and above != name:
            above = parents.get(above, "")
        for user, use in users.items() if above == name else ():
            total[user] += use
    return dict(total)
