"""What a user may ask for a notebook, as Slurm says it to that user, and whether a request is within it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..._shared import slurm_client, slurm_output

# what runs a command and returns its output, '' where it failed; tests have their own
Ask = Callable[[Sequence[str]], str]
MINUTES, CPUS, MEMORY_GB = 60, 1, 2
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_NODES = "%R|%c|%m|%G"


class RefusedError(Exception):
    """The request is not within the offer: what is wrong with it, for its user."""


@dataclass(frozen=True)
class Partition:
    """One partition; `gpus` is {type: most on a node}, minutes None for no limit."""

    name: str
    default: bool
    minutes: int | None
    cpus: int
    memory_gb: int
    gpus: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Offer:
    """What one user may choose from: the user's default account, and the default partition, come first."""

    partitions: tuple[Partition, ...]
    accounts: tuple[str, ...]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Offer:
        """From what `document` wrote."""
        return cls(tuple(Partition(**each) for each in document["partitions"]), tuple(document["accounts"]))

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"partitions": [asdict(each) for each in self.partitions], "accounts": list(self.accounts)}


@dataclass(frozen=True)
class Limits:
    """What the site allows one notebook."""

    minutes: int
    cpus: int
    memory_gb: int
    gpus: int


@dataclass(frozen=True)
class Request:
    """What one notebook asks of Slurm; '' is Slurm's default."""

    partition: str
    account: str
    minutes: int = MINUTES
    cpus: int = CPUS
    memory_gb: int = MEMORY_GB
    gpu: str = ""
    gpus: int = 0


def find(user: str, groups: Sequence[str], ask: Ask) -> Offer:
    """The offer for the user that asks."""
    accounts = _accounts(user, ask)
    shown = slurm_output.records(ask(slurm_client.show("partition")), "PartitionName")
    nodes = slurm_output.rows(ask(slurm_client.sinfo("--Node", "--format=" + _NODES)), _NODES)
    partitions = []
    for name, entry in shown.items():
        of_partition = [row[1:] for row in nodes if row[0] == name]
        if _is_open(entry, accounts, groups) and of_partition:
            partitions.append(_partition(name, entry, of_partition))
    return Offer(tuple(sorted(partitions, key=lambda each: not each.default)), tuple(accounts))


def _accounts(user: str, ask: Ask) -> list[str]:
    """The user's accounts, the default one first; [] without accounting."""
    rows = ask(slurm_client.sacctmgr("association", "where", "user=" + user, "format=account")).split()
    default = ask(slurm_client.sacctmgr("user", "where", "name=" + user, "format=defaultaccount")).strip()
    return sorted({name for name in rows if _WORD.fullmatch(name)}, key=lambda name: (name != default, name))


def _is_open(entry: Mapping[str, str], accounts: Sequence[str], groups: Sequence[str]) -> bool:
    """Whether the partition takes jobs of one of these."""
    if entry.get("State") != "UP" or entry.get("RootOnly") == "YES":
        return False
    if accounts and not any(_allows(entry, "Accounts", each) for each in accounts):
        return False
    return any(_allows(entry, "Groups", each) for each in groups)


def _allows(entry: Mapping[str, str], what: str, name: str) -> bool:
    allowed, denied = entry.get("Allow" + what, "ALL"), entry.get("Deny" + what, "")
    return (allowed == "ALL" or name in allowed.split(",")) and name not in denied.split(",")


def _partition(name: str, entry: Mapping[str, str], nodes: Sequence[Sequence[str]]) -> Partition:
    gpus: dict[str, int] = {}
    for _, _, gres in nodes:
        for kind, count in slurm_output.gpus(gres).items():
            gpus[kind] = max(count, gpus.get(kind, 0))
    try:
        minutes = slurm_output.minutes(entry.get("MaxTime", ""))
    except ValueError:
        minutes = None
    cpus, memory = (max(slurm_output.whole(row[place].rstrip("+")) or 1 for row in nodes) for place in (0, 1))
    return Partition(name, entry.get("Default") == "YES", minutes, cpus, max(memory >> 10, 1), gpus)


def choose(offer: Offer, wanted: Mapping[str, Any], limits: Limits) -> Request:
    """The request of a form, or of a program; what is left out has its default. Raises RefusedError."""
    if not offer.partitions:
        raise RefusedError("Slurm has no partition for you: ask your administrators for a Slurm account")
    partition = _one_of(offer.partitions, _word(wanted, "partition"))
    accounts, account = offer.accounts, _word(wanted, "account")
    if account and account not in accounts:
        raise RefusedError(f"{account} is not an account of yours: {', '.join(accounts) or 'there are none'}")
    gpu, gpus = _gpu(partition, _word(wanted, "gpu"), wanted, limits)
    most = min(partition.minutes or limits.minutes, limits.minutes)
    return Request(
        partition=partition.name,
        account=account or (accounts[0] if accounts else ""),
        minutes=_whole(wanted, "minutes", MINUTES, 1, most, f"minutes in {partition.name}"),
        cpus=_whole(wanted, "cpus", CPUS, 1, min(partition.cpus, limits.cpus), "cores"),
        memory_gb=_whole(
            wanted, "memory_gb", min(MEMORY_GB, partition.memory_gb), 1, min(partition.memory_gb, limits.memory_gb),
            "GB of memory",
        ),
        gpu=gpu,
        gpus=gpus,
    )  # fmt: skip


def _one_of(partitions: Sequence[Partition], name: str) -> Partition:
    for each in partitions:
        if not name or each.name == name:
            return each
    raise RefusedError(f"there is no partition {name} for you: {', '.join(each.name for each in partitions)}")


def _gpu(partition: Partition, kind: str, wanted: Mapping[str, Any], limits: Limits) -> tuple[str, int]:
    """Type and count; a type alone is one GPU."""
    if kind in ("", "none"):
        return "", 0
    # what Slurm has without a type
    key = "" if kind == "any" else kind
    if key not in partition.gpus:
        have = ", ".join(each or "any" for each in partition.gpus) or "none"
        raise RefusedError(f"{partition.name} has no GPU {kind}: {have}")
    most = min(partition.gpus[key], limits.gpus)
    return kind, _whole(wanted, "gpus", 1, 1, most, f"GPUs {kind} in {partition.name}")


def _word(wanted: Mapping[str, Any], key: str) -> str:
    text = str(wanted.get(key) or "").strip()
    if text and not _WORD.fullmatch(text):
        raise RefusedError(f"{key}: {slurm_output.clean(text, 40)} is not a name")
    return text


def _whole(wanted: Mapping[str, Any], key: str, default: int, least: int, most: int, what: str) -> int:
    text = str(wanted.get(key) or "").strip()
    number = slurm_output.whole(text) if text else min(default, most)
    if number is None or not least <= number <= most:
        raise RefusedError(f"{slurm_output.clean(text, 20)} is not between {least} and {most} {what}")
    return number


def form(offer: Offer, limits: Limits) -> str:
    """The fields of the page on which a notebook is started."""
    if not offer.partitions:
        return "<p>Slurm has no partition for you: ask your administrators for a Slurm account.</p>"
    return "\n".join(_fields(offer, limits))


def _fields(offer: Offer, limits: Limits) -> Iterator[str]:
    hours = -(-limits.minutes // 60)
    yield _select("partition", "Partition", [(each.name, _describe(each)) for each in offer.partitions])
    if len(offer.accounts) > 1:
        yield _select("account", "Account", [(each, each) for each in offer.accounts])
    kinds = list(dict.fromkeys(kind or "any" for each in offer.partitions for kind in each.gpus))
    if kinds and limits.gpus:
        yield _select("gpu", "GPU", [("none", "none"), *((kind, _where(offer, kind)) for kind in kinds)])
        yield _number("gpus", "GPUs of that type", 1, limits.gpus)
    yield _number("cpus", "Cores", CPUS, min(limits.cpus, max(each.cpus for each in offer.partitions)))
    most = min(limits.memory_gb, max(each.memory_gb for each in offer.partitions))
    yield _number("memory_gb", "Memory in GB", min(MEMORY_GB, most), most)
    yield _number("hours", "Hours, after which it ends", 1, hours)


def _describe(partition: Partition) -> str:
    limit = "" if partition.minutes is None else f", up to {slurm_output.clock(partition.minutes)}"
    return f"{partition.name}: {partition.cpus} cores, {partition.memory_gb} GB on a node{limit}"


def _where(offer: Offer, kind: str) -> str:
    key = "" if kind == "any" else kind
    return f"{kind} (in {', '.join(each.name for each in offer.partitions if key in each.gpus)})"


def _select(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    listed = "".join(f'<option value="{html.escape(key)}">{html.escape(text)}</option>' for key, text in options)
    return _field(name, label, f'<select class="form-select" id="{name}" name="{name}">{listed}</select>')


def _number(name: str, label: str, value: int, most: int) -> str:
    attributes = f'id="{name}" name="{name}" type="number" min="1" max="{most}" value="{value}"'
    return _field(name, label, f'<input class="form-control" {attributes}>')


def _field(name: str, label: str, control: str) -> str:
    return f'<div class="mb-3"><label class="form-label" for="{name}">{label}</label>{control}</div>'


def from_form(fields: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What a browser sends, {name: values}, as `choose` takes it."""
    values = {name: str(each[0]) for name, each in fields.items() if each}
    hours = slurm_output.whole(values.pop("hours", "").strip())
    return {**values, **({"minutes": str(60 * hours)} if hours else {})}
