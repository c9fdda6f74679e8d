"""Policy builder: collects the policy of cluster.yml, checks it, returns a frozen Policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from deepopsctl.model.cluster import Partition
from deepopsctl.model.policy import Account, Billing, Policy, Preemption, Priority, Qos, Share, User, parents_first
from deepopsctl.text.problems import Problems
from deepopsctl.text.values import suggest

# Slurm creates these itself.
BUILT_IN_QOS = "normal"
BUILT_IN_ACCOUNT = "root"


@dataclass(frozen=True, slots=True)
class Place:
    """A location: FILE:LINE, and the path in the file."""

    where: str
    within: str


class PolicyDraft:
    """The sections as read, each entry with its place."""

    def __init__(self) -> None:
        self.qos: list[tuple[Place, Qos]] = []
        self.accounts: list[tuple[Place, Account]] = []
        self.users: list[tuple[Place, User]] = []
        self.priority = Priority()
        self.preemption = Preemption()
        self.billing: tuple[Place, Billing] | None = None
        # of prepared partitions; a declared QOS of the same name replaces one
        self.prepared: list[tuple[Place, Qos]] = []
        # set if an entry can't be read: what it declares is then not reported as missing
        self.incomplete = False

    def finish(
        self, partitions: Iterable[tuple[Place, Partition]], gpu_types: frozenset[str], problems: Problems
    ) -> Policy:
        """The frozen policy; adds its problems to `problems`."""
        declared = {qos.name for _, qos in self.qos}
        added = [entry for entry in self.prepared if entry[1].name not in declared]
        self.qos += [(place, _for_gpus(qos, gpu_types)) for place, qos in added]
        for place in (place for place, qos in added if qos.name == BUILT_IN_QOS):
            hint = "give the partition another name, or another QOS in its options"
            problems.add(place.where, f"{place.within}.prepared: its QOS {BUILT_IN_QOS} is that of all jobs", hint)
        checker = _Checker(self, gpu_types, problems)
        checker.check(partitions)
        return Policy(
            qos=tuple(qos for _, qos in self.qos),
            accounts=tuple(account for _, account in self.accounts),
            users=tuple(user for _, user in self.users),
            priority=self.priority,
            preemption=self.preemption,
            billing=self.billing[1] if self.billing else None,
            undeclared=tuple(checker.undeclared),
        )


def check_accounts(policy: Policy, others: Iterable[str]) -> None:
    """Refuse accounts of partitions that neither cluster.yml declares nor people.yml (`others`)."""
    known = [BUILT_IN_ACCOUNT, *(account.name for account in policy.accounts), *others]
    problems = Problems()
    for where, key, name in policy.undeclared:
        if name not in known:
            problems.add(where, f"{key}: the account {name} is not declared", _hint("accounts", name, known))
    problems.raise_if_any()


class _Checker:
    """Checks the references within a policy."""

    def __init__(self, draft: PolicyDraft, gpu_types: frozenset[str], problems: Problems) -> None:
        self.draft = draft
        self.gpu_types = gpu_types
        self.problems = problems
        self.qos = [BUILT_IN_QOS, *(qos.name for _, qos in draft.qos)]
        self.accounts = [BUILT_IN_ACCOUNT, *(account.name for _, account in draft.accounts)]
        self.account_of = {account.name: account for _, account in draft.accounts}
        self.undeclared: list[tuple[str, str, str]] = []

    def check(self, partitions: Iterable[tuple[Place, Partition]]) -> None:
        self._check_twice("qos", ((place, qos.name) for place, qos in self.draft.qos))
        self._check_twice("account", ((place, account.name) for place, account in self.draft.accounts))
        self._check_twice("user", ((place, f"{user.name} of {user.account}") for place, user in self.draft.users))
        for place, qos in self.draft.qos:
            self._check_qos(place, qos)
        self._check_cycle("preempts", {qos.name: (place, qos.preempts) for place, qos in self.draft.qos})
        for place, account in self.draft.accounts:
            self._known_account(place, "parent", account.parent)
            self._check_share(place, account.share, account.parent)
            self._check_root(place, account)
        self._check_parents()
        for place, user in self.draft.users:
            self._known_account(place, "account", user.account)
            self._check_share(place, user.share, user.account)
        self._check_defaults()
        for place, partition in partitions:
            self._check_partition(place, partition)

    def _check_twice(self, what: str, entries: Iterable[tuple[Place, str]]) -> None:
        seen: dict[str, Place] = {}
        for place, name in entries:
            if name in seen:
                self._refuse(place, "", f"the {what} {name} is already declared at {seen[name].where}",
                             "declare it once")  # fmt: skip
            seen.setdefault(name, place)

    def _check_qos(self, place: Place, qos: Qos) -> None:
        self._known_qos(place, "preempts", qos.preempts)
        self._check_gpus(place, qos.limits)
        if qos.preempts and self.draft.preemption.by != "qos" and not self.draft.incomplete:
            self._refuse(place, "preempts", f"{qos.name} would preempt nothing: preemption by QOS is off",
                         "add `preemption: {by: qos}`")  # fmt: skip

    def _check_cycle(self, key: str, edges: Mapping[str, tuple[Place, tuple[str, ...]]]) -> None:
        """Slurm refuses cycles of QOS that preempt each other."""
        for start, (place, _) in edges.items():
            todo, seen = list(edges[start][1]), set[str]()
            while todo:
                name = todo.pop()
                if name == start:
                    self._refuse(place, key, f"{start} would in the end preempt itself", "take one of the cycle away")
                    return
                if name in edges and name not in seen:
                    seen.add(name)
                    todo += edges[name][1]

    def _check_root(self, place: Place, account: Account) -> None:
        if account.name == BUILT_IN_ACCOUNT:
            self._refuse(place, "name", "root is Slurm's own account, above all others", "limit the accounts below it")

    def _check_parents(self) -> None:
        reached = {account.name for account in parents_first(tuple(self.account_of.values()))}
        for place, account in self.draft.accounts:
            if account.name not in {*reached, BUILT_IN_ACCOUNT} and account.parent in self.account_of:
                self._refuse(place, "parent", f"{account.name} is, over its parents, below itself",
                             "let one of them have the parent root")  # fmt: skip
                return

    def _check_share(self, place: Place, share: Share, parent: str) -> None:
        self._known_qos(place, "qos", share.qos)
        self._check_gpus(place, share.limits)
        if not share.default_qos:
            return
        self._known_qos(place, "default_qos", (share.default_qos,))
        allowed = share.qos or self._inherited(parent)
        if share.default_qos not in allowed and share.default_qos in self.qos:
            self._refuse(place, "default_qos", f"{share.default_qos} is not among the QOS allowed here: "
                         f"{', '.join(allowed)}", "add it to `qos:`")  # fmt: skip

    def _inherited(self, name: str) -> tuple[str, ...]:
        """The QOS that an account's children may use."""
        for _ in self.accounts:
            account = self.account_of.get(name)
            if account is None:
                break
            if account.share.qos:
                return account.share.qos
            name = account.parent
        return (BUILT_IN_QOS,)

    def _check_defaults(self) -> None:
        first: dict[str, str] = {}
        for place, user in self.draft.users:
            other = first.setdefault(user.name, user.account) if user.default else user.account
            if other != user.account:
                self._refuse(place, "default", f"{user.name} has the default account {other} already",
                             "let one account be the default")  # fmt: skip

    def _check_partition(self, place: Place, partition: Partition) -> None:
        """Checked only if cluster.yml declares QOS or accounts: a site may manage them with sacctmgr alone."""
        lists = {
            key.lower(): (key, value.split(",")) for key, value in partition.options.items() if value.upper() != "ALL"
        }
        for key in ("qos", "allowqos", "denyqos") if self.draft.qos else ():
            if key in lists:
                self._known_qos(place, f"options.{lists[key][0]}", lists[key][1])
        for key in ("allowaccounts", "denyaccounts") if self.draft.accounts else ():
            option, names = lists.get(key, ("", []))
            unknown = (name for name in names if name and name not in self.accounts)
            self.undeclared += ((place.where, f"{place.within}.options.{option}", name) for name in unknown)

    def _check_gpus(self, place: Place, limits: Mapping[str, str]) -> None:
        """Limits may only name GPU types that nodes have."""
        for limit, gpu_type in _gpu_types(limits):
            if gpu_type not in self.gpu_types and self.gpu_types:
                self._refuse(place, "limits", f"{limit}: no node has GPUs of type {gpu_type}",
                             suggest(gpu_type, sorted(self.gpu_types)))  # fmt: skip

    def _known_qos(self, place: Place, key: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.qos and not self.draft.incomplete:
                self._refuse(place, key, f"the QOS {name} is not declared", _hint("qos", name, self.qos))

    def _known_account(self, place: Place, key: str, name: str) -> None:
        if name and name not in self.accounts and not self.draft.incomplete:
            self._refuse(place, key, f"the account {name} is not declared",
                         _hint("accounts", name, self.accounts))  # fmt: skip

    def _refuse(self, place: Place, key: str, message: str, hint: str) -> None:
        label = ".".join(part for part in (place.within, key) if part)
        self.problems.add(place.where, f"{label}: {message}", hint)


def _hint(section: str, name: str, known: list[str]) -> str:
    close = suggest(name, known)
    declare = f"declare it: `{section}: [{{name: {name}}}]`"
    return f"{close} If not, {declare}" if close.startswith("did you") else declare


def _for_gpus(qos: Qos, gpu_types: frozenset[str]) -> Qos:
    """Without GPUs, Slurm knows no limit for them."""
    if gpu_types:
        return qos
    limits = {
        name: ",".join(item for item in text.split(",") if not item.startswith("gres/gpu"))
        for name, text in qos.limits.items()
    }
    return replace(qos, limits=limits)


def _gpu_types(limits: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(limit, GPU type) for every typed GPU that limits name."""
    for limit, text in limits.items():
        for item in text.split(","):
            name = item.partition("=")[0]
            if name.startswith("gres/gpu:"):
                yield limit, name.removeprefix("gres/gpu:")
