"""The policy: QOS, accounts, priorities, preemption. Frozen, in Slurm's spelling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

NOTHING: Mapping[str, str] = MappingProxyType({})

# Keys of cluster.yml -> keys of slurm.conf.
PRIORITY_WEIGHTS = MappingProxyType({
    "age": "PriorityWeightAge",
    "assoc": "PriorityWeightAssoc",
    "fairshare": "PriorityWeightFairshare",
    "job_size": "PriorityWeightJobSize",
    "partition": "PriorityWeightPartition",
    "qos": "PriorityWeightQOS",
})  # fmt: skip
PREEMPT_TYPES = MappingProxyType({"qos": "preempt/qos", "partition": "preempt/partition_prio"})
# suspended jobs need the gang scheduler, which resumes them
PREEMPT_MODES = MappingProxyType({"requeue": "REQUEUE", "cancel": "CANCEL", "suspend": "SUSPEND,GANG"})


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service. `limits` and `options` are by the columns of `sacctmgr show qos`."""

    name: str
    priority: str = ""
    preempts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    limits: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    options: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    def settings(self) -> dict[str, str]:
        """The declared settings, by sacctmgr's column names."""
        columns = {"Priority": self.priority, "Preempt": ",".join(self.preempts), "Flags": ",".join(self.flags)}
        return {key: value for key, value in columns.items() if value} | dict(self.options) | dict(self.limits)


@dataclass(frozen=True, slots=True)
class Share:
    """The limits and QOS of an account or a user; `limits` are by the columns of `sacctmgr show association`."""

    fairshare: str = ""
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    limits: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    def settings(self) -> dict[str, str]:
        """The declared settings, by sacctmgr's column names."""
        columns = {"Share": self.fairshare, "QOS": ",".join(self.qos), "DefaultQOS": self.default_qos}
        return {key: value for key, value in columns.items() if value} | dict(self.limits)


@dataclass(frozen=True, slots=True)
class Account:
    """An account below `parent`; `users` are those without settings of their own."""

    name: str
    parent: str = "root"
    description: str = ""
    share: Share = field(default_factory=Share)
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """A user in one account; `default` if it is the user's default account."""

    name: str
    account: str
    default: bool = False
    share: Share = field(default_factory=Share)


@dataclass(frozen=True, slots=True)
class Priority:
    """The multifactor priority; '' means Slurm's own default."""

    weights: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    tres_weights: str = ""
    decay_half_life: str = ""
    usage_reset: str = ""
    max_age: str = ""
    favor_small: bool = False

    def settings(self) -> dict[str, str]:
        """Keys of slurm.conf."""
        keys = {PRIORITY_WEIGHTS[key]: value for key, value in self.weights.items()} | {
            "PriorityWeightTRES": self.tres_weights,
            "PriorityDecayHalfLife": self.decay_half_life,
            "PriorityUsageResetPeriod": self.usage_reset.upper(),
            "PriorityMaxAge": self.max_age,
            "PriorityFavorSmall": "YES" if self.favor_small else "",
        }
        return {key: value for key, value in keys.items() if value}


@dataclass(frozen=True, slots=True)
class Preemption:
    """Which jobs are preempted, and how; '' means none."""

    by: str = ""
    mode: str = "requeue"
    exempt_time: str = ""

    def settings(self) -> dict[str, str]:
        """Keys of slurm.conf."""
        if not self.by:
            return {}
        exempt = {"PreemptExemptTime": self.exempt_time} if self.exempt_time else {}
        return {"PreemptType": PREEMPT_TYPES[self.by], "PreemptMode": PREEMPT_MODES[self.mode], **exempt}


@dataclass(frozen=True, slots=True)
class Billing:
    """Jobs are billed in reference GPU units (RGU); `gpus` are the site's values by gres type."""

    gpus: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole policy, in the order of cluster.yml."""

    qos: tuple[Qos, ...] = ()
    accounts: tuple[Account, ...] = ()
    users: tuple[User, ...] = ()
    priority: Priority = field(default_factory=Priority)
    preemption: Preemption = field(default_factory=Preemption)
    # None where partitions have their own TRESBillingWeights, or none
    billing: Billing | None = None
    # accounts of partitions that cluster.yml does not declare, people.yml may: (FILE:LINE, key, account)
    undeclared: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)

    def variable(self) -> dict[str, object]:
        """The inventory variable `slurm_policy`; empty if nothing is declared."""
        if self == Policy():
            return {}
        billing = {"billing": {"gpus": dict(self.billing.gpus)}} if self.billing else {}
        return {
            **billing,
            "config": self.priority.settings() | self.preemption.settings(),
            "qos": [{"name": qos.name, "settings": qos.settings()} for qos in self.qos],
            "accounts": [_account(account) for account in parents_first(self.accounts)],
            "users": [_user(user) for user in self.all_users()],
        }

    def all_users(self) -> tuple[User, ...]:
        """Users with entries of their own, then users that only an account lists."""
        own = {(user.name, user.account) for user in self.users}
        named = (User(name, account.name) for account in self.accounts for name in account.users)
        return (*self.users, *(user for user in named if (user.name, user.account) not in own))


def parents_first(accounts: tuple[Account, ...]) -> list[Account]:
    """Accounts ordered parents before children; those in a cycle are left out."""
    known = {account.name for account in accounts}
    done: dict[str, Account] = {}
    todo = list(accounts)
    while todo:
        ready = [account for account in todo if account.parent in done or account.parent not in known]
        if not ready:
            break
        done.update((account.name, account) for account in ready)
        todo = [account for account in todo if account.name not in done]
    return list(done.values())


def _account(account: Account) -> dict[str, object]:
    placed = {"ParentName": account.parent} | ({"Descr": account.description} if account.description else {})
    return {"name": account.name, "settings": placed | account.share.settings()}


def _user(user: User) -> dict[str, object]:
    default = {"default": True} if user.default else {}
    return {"name": user.name, "account": user.account, **default, "settings": user.share.settings()}
