"""What each user may read: their own use, and that of others only where Slurm itself would show it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import accounting
from .accounting import Use, Used

# words of PrivateData (slurm.conf, slurmdbd.conf) that hide what others use
HIDING = {"usage", "jobs"}


@dataclass(frozen=True)
class Site:
    """What the documents of all users have in common; moments in seconds since 1970."""

    cluster: str
    start: int
    end: int
    capacity: float
    private: bool
    # account -> its parent, and its share of the cluster
    shares: Mapping[str, Any]
    # account -> those who see all of it
    coordinators: Mapping[str, Collection[str]]

    def target_of(self, account: str) -> float:
        """The RGU-years of the period that an account's share stands for."""
        hours = (self.end - self.start) / 3600
        return float(self.shares[account][1]) * self.capacity * hours / accounting.HOURS_PER_YEAR


def is_private(config: str) -> bool:
    """Whether `sacctmgr show config` has, in any of its parts, others' use hidden."""
    values = (line.partition("=") for line in config.splitlines())
    return any(key.strip() == "PrivateData" and HIDING & set(value.strip().split(",")) for key, _, value in values)


def coordinators(text: str) -> dict[str, set[str]]:
    """`sacctmgr -nP show account withcoord format=account,coordinators`; those of an account see what is below it."""
    rows = (line.split("|") for line in text.splitlines())
    return {row[0]: set(filter(None, row[1].split(","))) for row in rows if len(row) == 2}


def members(lines: list[str]) -> dict[str, list[str]]:
    """The accounts of each user, from sacctmgr's lines of accounting.SHARES."""
    accounts: dict[str, list[str]] = {}
    for line in lines:
        account, _parent, user, _share = line.split("|")
        if user:
            accounts.setdefault(user, []).append(account)
    return accounts


def document(user: str, accounts: Collection[str], site: Site, used: Used) -> dict[str, Any]:
    """One user's document."""
    parents = {name: parent for name, (parent, _share) in site.shares.items()}
    return {
        "schema": 1,
        "cluster": site.cluster,
        "user": user,
        "start": site.start,
        "end": site.end,
        "accounts": [
            _account(name, user, site, accounting.total_of(name, parents, used)) for name in _top(accounts, parents)
        ],
    }


def _top(accounts: Collection[str], parents: Mapping[str, str]) -> Iterator[str]:
    """Those of a user's accounts that are below no other of them: a group, not its parts for CPUs and GPUs as well."""
    return (name for name in sorted(accounts) if name in parents and not set(_above(name, parents)) & set(accounts))


def _above(account: str, parents: Mapping[str, str]) -> Iterator[str]:
    parent = parents.get(account, "")
    while parent:
        yield parent
        parent = parents.get(parent, "")


def _account(name: str, user: str, site: Site, total: Mapping[str, Use]) -> dict[str, Any]:
    parents = {each: parent for each, (parent, _share) in site.shares.items()}
    sees_all = not site.private or any(
        user in site.coordinators.get(each, ()) for each in (name, *_above(name, parents))
    )
    others = sorted(total) if sees_all else []
    return {
        "name": name,
        "share": round(float(site.shares[name][1]), 6),
        "target_rgu_years": round(site.target_of(name), 6),
        "own": numbers(total.get(user, Use())),
        "total": numbers(sum(total.values(), Use())) if sees_all else None,
        "users": [{"name": each, **numbers(total[each])} for each in others],
    }


def numbers(use: Use) -> dict[str, Any]:
    """A use as JSON has it."""
    return {
        "jobs": use.jobs,
        "rgu_hours": round(use.rgu_hours, 4),
        "rgu_years": round(use.rgu_years, 6),
        "core_hours": round(use.core_hours, 4),
        "core_years": round(use.core_years, 6),
    }
