"""What accounts have used, in reference GPU units (RGU), and their shares: sacct and sacctmgr on the controller.

Slurm stores a job's billing in thousandths of an RGU (slurm/billing.py), in partitions without GPUs in thousandths of a
core. Jobs are read one by one and cut to the period (`sacct --truncate`), so that figures are exact and include running
jobs; Slurm's own hourly summary (sreport) lacks the last hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import AS_DECLARED, Login
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.model.cluster import Cluster
from deepopsctl.node_programs.commands.account_usage.accounting import (
    HOURS_PER_YEAR,
    JOBS,
    SHARES,
    Use,
    read_jobs,
    read_shares,
)
from deepopsctl.slurm.billing import units_of_node
from deepopsctl.ssh.node_command import ask
from deepopsctl.ssh.remote_scripts import MARK

_SECONDS_PER_HOUR = 3600
# start, end ('' for this year so far) and name of the cluster; in the controller's time zone, as its sacct
_SCRIPT = f"""
set -e
first=$(date -d "${{1:-$(date +%Y)-01-01}}" +%s)
last=$(date -d "${{2:-now}}" +%s)
echo "{MARK}$first $last"
sacctmgr --noheader --parsable2 show assoc cluster="$3" format={SHARES}
echo
[ "$first" -lt "$last" ] || exit 0
sacct --noheader --parsable2 --allusers --allocations --truncate --clusters="$3" --format={JOBS} \\
  --starttime="$(date -d "@$first" +%FT%T)" --endtime="$(date -d "@$last" +%FT%T)"
"""


@dataclass(frozen=True, slots=True)
class AccountUse:
    """One account: its parent ('' for the root), its share of the cluster (0 to 1), and what its users used."""

    name: str
    parent: str
    share: float
    users: Mapping[str, Use] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total(self) -> Use:
        """All users together, without accounts below this one."""
        return sum(self.users.values(), Use())


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a cluster in a period; `capacity` is in RGU: all GPUs that cluster.yml has."""

    cluster: str
    start: datetime
    end: datetime
    capacity: float
    accounts: tuple[AccountUse, ...]

    def total_of(self, name: str) -> Use:
        """An account and all below it."""
        own = sum((account.total for account in self.accounts if account.name == name), Use())
        below = (account.name for account in self.accounts if account.parent == name)
        return sum(map(self.total_of, below), own)

    def target_of(self, account: AccountUse) -> float:
        """The RGU-years of the period that an account's share stands for."""
        hours = (self.end - self.start).total_seconds() / _SECONDS_PER_HOUR
        return account.share * self.capacity * hours / HOURS_PER_YEAR


def query_usage(directory: ClusterDir, start: str, end: str, login: Login = AS_DECLARED) -> Usage:
    """Ask the controller. `start` and `end` are 2026-04-01 or 2026-04-01T12:00, '' for this year so far."""
    cluster = directory.cluster()
    billing = cluster.policy.billing
    if billing is None:
        raise InputError.single(
            "cluster.yml",
            "there is no `billing:` section, so jobs have no reference GPU units",
            "add `billing: {}` and deploy; jobs count from then on (docs/deploy/billing.md)",
        )
    capacity = sum(units_of_node(node.gpus, billing.gpus) for node in cluster.compute if node.gpus)
    (first, last), shares, jobs = _ask(directory, cluster, start, end, login)
    if first >= last:
        raise InputError.single(
            "--start, --end", f"the period ends before it starts: {first:%F %H:%M} to {last:%F %H:%M} UTC", "check both"
        )
    of_gpus = frozenset(
        partition.name for partition in cluster.partitions
        if any(node.gpus for node in cluster.compute if node.name in partition.nodes)
    )  # fmt: skip
    used = read_jobs(jobs, of_gpus)
    accounts = tuple(
        AccountUse(name, parent, share, used.pop(name, {})) for name, (parent, share) in read_shares(shares).items()
    )
    # jobs of accounts that have been removed since
    removed = tuple(AccountUse(name, "", 0.0, users) for name, users in sorted(used.items()))
    return Usage(cluster.name, first, last, capacity, accounts + removed)


def _ask(
    directory: ClusterDir, cluster: Cluster, start: str, end: str, login: Login
) -> tuple[tuple[datetime, datetime], list[str], list[str]]:
    """The period, associations and jobs, as the controller knows them."""
    host = cluster.controllers[0]
    words = ["sh", "-c", _SCRIPT, "-", start, end, cluster.name]
    answer = ask(directory, cluster, host, words, as_root=True, login=login)
    if answer.status:
        raise DeepOpsError(
            f"{host.name}: the accounting can't be read: {answer.reason}",
            "is slurmdbd running? see `deepopsctl status`",
        )
    # what the login itself prints comes before it
    period, *lines = answer.output.partition(MARK)[2].splitlines()
    middle = lines.index("")
    first, last = (datetime.fromtimestamp(int(moment), UTC) for moment in period.split())
    return (first, last), lines[:middle], lines[middle + 1 :]
