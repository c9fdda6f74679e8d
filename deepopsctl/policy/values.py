"""Checks of single values of a policy; each returns the value or raises a RefusedError."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from deepopsctl.node_programs._shared.slurm_words import is_unlimited
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.values import check_max_time, check_template, suggest

_TRES_ITEM = re.compile(r"((?:gres|license|fs|bb|interconnect)/[A-Za-z0-9_.:@-]+|[a-z]+)=([0-9]+(?:\.[0-9]+)?[KMGTP]?)")
_PLAIN_TRES = frozenset({"cpu", "mem", "node", "billing", "energy", "vmem", "pages"})
USAGE_RESETS = ("none", "now", "daily", "weekly", "monthly", "quarterly", "yearly")
# Flags of QOS; sacctmgr silently ignores unknown ones.
QOS_FLAGS = (
    "DenyOnLimit", "EnforceUsageThreshold", "NoDecay", "NoReserve", "OverPartQOS", "PartitionMaxNodes",
    "PartitionMinNodes", "PartitionTimeLimit", "RelativeQOS", "RequiresReservation", "UsageFactorSafe",
)  # fmt: skip


def check_word(text: str) -> str:
    """A name in the accounting database, which knows lower case only."""
    if not re.fullmatch(r"[a-z0-9_][a-z0-9_.@+-]{0,62}", text):
        lower = " (Slurm's accounting keeps names in lower case)" if text.lower() != text else ""
        raise RefusedError(
            f"{shorten(text)!r} can't be a name here{lower}", "use lower-case letters, digits, _, - and ."
        )
    return text


def check_text(text: str) -> str:
    """A description: sacctmgr prints tables with |, so that can't be in it."""
    if not text.isprintable() or re.search(r"[|=,'\"\\]", text) or len(text) > 120:
        raise RefusedError(f"{shorten(text)!r} can't be a description", "write some words without | = , quotes")
    return check_template(text)


def check_count(text: str) -> str:
    """A whole number."""
    if text and not re.fullmatch(r"[0-9]{1,9}", text):
        raise RefusedError(f"{shorten(text)!r} is not a whole number", "leave the key out for no limit")
    return text


def check_factor(text: str) -> str:
    """A number that may have a fraction."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        raise RefusedError(f"{shorten(text)!r} is not a valid number", "write it like 0.5 or 2")
    return text


def check_units(text: str) -> float:
    """Reference GPU units of one GPU."""
    units = float(check_factor(text))
    if units <= 0:
        raise RefusedError("a GPU that costs nothing", "write a number above 0, like 12.15")
    return units


def check_fairshare(text: str) -> str:
    """Shares, or `parent`."""
    if text and text != "parent" and not re.fullmatch(r"[0-9]{1,9}", text):
        raise RefusedError(f"{shorten(text)!r} is not a number of shares", "write a whole number, or parent")
    return text


def check_tres(text: str) -> str:
    """TRES with amounts: `cpu=64,mem=512G,gres/gpu=8`."""
    names = []
    for item in text.split(","):
        match = _TRES_ITEM.fullmatch(item.strip())
        if not match:
            raise RefusedError(f"{shorten(item)!r} is not a TRES with an amount", "write cpu=64,mem=512G,gres/gpu=8")
        if "/" not in match[1] and match[1] not in _PLAIN_TRES:
            hint = "write gres/gpu" if match[1] == "gpu" else suggest(match[1], [*sorted(_PLAIN_TRES), "gres/gpu"])
            raise RefusedError(f"{match[1]} is not a TRES of Slurm's", hint)
        if not match[2].isdigit() and match[1] != "mem":
            raise RefusedError(f"{shorten(item)!r}: only mem has a unit", "write a whole number")
        names.append(match[1])
    if len(set(names)) < len(names):
        raise RefusedError(f"{shorten(text)} names a TRES twice", "name each once")
    return text.replace(" ", "")


def check_time(text: str) -> str:
    """A time in Slurm's format; to set no limit, omit the key."""
    if is_unlimited(text):
        raise RefusedError(f"{text} is not a limit", "leave the key out for no limit")
    return check_max_time(text)


_COMMON = {
    "GrpTRES": check_tres, "GrpTRESMins": check_tres, "GrpTRESRunMins": check_tres, "GrpJobs": check_count,
    "GrpJobsAccrue": check_count, "GrpSubmit": check_count, "GrpWall": check_time, "MaxTRES": check_tres,
    "MaxTRESPerNode": check_tres, "MaxTRESMins": check_tres, "MaxWall": check_time,
}  # fmt: skip
QOS_LIMITS: Mapping[str, Callable[[str], str]] = MappingProxyType({
    **_COMMON, "MaxTRESPU": check_tres, "MaxTRESPA": check_tres, "MaxJobsPU": check_count, "MaxJobsPA": check_count,
    "MaxJobsAccruePU": check_count, "MaxJobsAccruePA": check_count, "MaxSubmitPU": check_count,
    "MaxSubmitPA": check_count, "MinTRES": check_tres,
})  # fmt: skip
ASSOCIATION_LIMITS: Mapping[str, Callable[[str], str]] = MappingProxyType({
    **_COMMON, "MaxJobs": check_count, "MaxJobsAccrue": check_count, "MaxSubmit": check_count,
})  # fmt: skip
# Longer names of the same limits in sacctmgr and its manual.
_LONG = {
    "GrpSubmitJobs": "GrpSubmit", "MaxTRESPerJob": "MaxTRES", "MaxTRESMinsPerJob": "MaxTRESMins",
    "MaxWallDurationPerJob": "MaxWall", "MaxTRESPerUser": "MaxTRESPU", "MaxTRESPerAccount": "MaxTRESPA",
    "MaxJobsPerUser": "MaxJobsPU", "MaxJobsPerAccount": "MaxJobsPA", "MaxJobsAccruePerUser": "MaxJobsAccruePU",
    "MaxJobsAccruePerAccount": "MaxJobsAccruePA", "MaxSubmitJobsPerUser": "MaxSubmitPU",
    "MaxSubmitJobsPU": "MaxSubmitPU", "MaxSubmitJobsPA": "MaxSubmitPA",
    "MaxSubmitJobsPerAccount": "MaxSubmitPA", "MaxSubmitJobs": "MaxSubmit", "MinTRESPerJob": "MinTRES",
}  # fmt: skip


def limit_name(key: str, known: Mapping[str, Callable[[str], str]]) -> str:
    """The sacctmgr column of a limit, for any spelling of its name."""
    short = {name.lower(): name for name in known}
    short |= {long.lower(): name for long, name in _LONG.items() if name in known}
    if key.lower() not in short:
        raise RefusedError("is not a limit that can be set here", suggest(key, known))
    return short[key.lower()]


def check_qos_flag(text: str) -> str:
    """A flag of a QOS, in Slurm's spelling."""
    spelling = {flag.lower(): flag for flag in QOS_FLAGS}.get(text.lower())
    if spelling is None:
        raise RefusedError(f"{shorten(text)!r} is not a flag of a QOS", suggest(text, QOS_FLAGS))
    return spelling


def check_choice(text: str, known: tuple[str, ...]) -> str:
    """One of some words, in any case."""
    if text.lower() not in known:
        raise RefusedError(f"{shorten(text)!r} is not known here", suggest(text.lower(), known))
    return text.lower()


def check_weights(weights: Mapping[str, str], known: tuple[str, ...]) -> Mapping[str, str]:
    """Weights of the priority's factors: whole numbers."""
    for key, value in weights.items():
        if key not in known:
            raise RefusedError(f"{shorten(key)} is not a factor of the priority", suggest(key, known))
        if not value or not re.fullmatch(r"[0-9]{1,9}", value):
            raise RefusedError(
                f"{key}: {shorten(value)!r} is not a valid weight", "write a whole number, 0 switches it off"
            )
    return weights


def check_tres_weights(text: str) -> str:
    """PriorityWeightTRES: `CPU=1000,GRES/gpu=4000`."""
    if text and not re.fullmatch(r"[A-Za-z/:_0-9.-]+=[0-9.]+(,[A-Za-z/:_0-9.-]+=[0-9.]+)*", text):
        raise RefusedError(f"{shorten(text)!r} are not weights", "write CPU=1000,GRES/gpu=4000")
    return text
