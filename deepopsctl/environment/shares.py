"""What the shares of accounts are worth: an account that has nearly all of them leaves nothing to the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from deepopsctl.errors import Problem
from deepopsctl.model.cluster import Cluster

# of the siblings' shares together; the jobs of all others then wait behind those of one account
MOST = 0.9


def dominating(cluster: Cluster) -> Iterator[Problem]:
    """A warning for each account with more than `MOST` of the shares that it and its siblings have."""
    for accounts in _siblings(cluster).values():
        total = sum(shares for _, shares in accounts.values())
        for name, (where, shares) in accounts.items():
            if len(accounts) > 1 and shares > MOST * total:
                others = "all other accounts together" if len(accounts) > 2 else "the other account"
                what = f"{name} has {shares} of {total} shares ({shares / total:.1%}), {others} {total - shares}"
                hint = (
                    "shares count against those of the accounts next to it, and an account that declares none has 1: "
                    "give every account its part, such as 60 and 40 (docs/deploy/people.md)"
                )
                yield Problem(where, what, hint)


def _siblings(cluster: Cluster) -> dict[str, dict[str, tuple[str, int]]]:
    """By parent, each account with the file that declares it and its shares, as Slurm has them in its time."""
    siblings: defaultdict[str, dict[str, tuple[str, int]]] = defaultdict(dict)
    for account in cluster.policy.accounts:
        share = account.share.fairshare or "1"
        # `parent`: its users count as the parent's
        if share.isdecimal():
            siblings[account.parent][account.name] = ("cluster.yml", int(share))
    people = cluster.people
    for group in people.groups if people else ():
        siblings["root"][group.name] = ("people.yml", group.shares or 1)
    for followed in people.directory.accounts if people and people.directory else ():
        siblings["root"][followed.account] = ("people.yml", followed.shares or 1)
    return siblings
