"""Read what Slurm's commands print, as text, which is the same from 22.05 on; their JSON is not. Python 3.8."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

from . import slurm_words
from .hostlist import expand

# for squeue. No text of a user's: a job's name may have line ends and bars in it, and would be read as more jobs.
JOB_FORMAT = "%i|%u|%T|%P|%N"
Record = Dict[str, str]
# the key must follow a blank: CfgTRES=cpu=2 is one pair
_KEY = re.compile(r"(?:(?<=\s)|^)([A-Za-z][A-Za-z0-9_:/.()]*)=")
_REASON = re.compile(r"\sReason=((.*?) \[([^@\[\]]*)@([^\[\]]*)\])(?=\s|$)")
_JOB = re.compile(r"([0-9]+(?:\+[0-9]+|_[0-9]+|_\[[0-9,:%.-]+\]?)?)\|([^|]+)\|([A-Z_?]+)\|([^|]*)\|([^|]*)")
_PINGED = re.compile(r"^Slurmctld\(\S+\) at (\S+) is (UP|DOWN)", re.MULTILINE)
# 26.05 has another letter before `using`
_STARTS = re.compile(r"Job [0-9]+ to start at ([0-9]+)\b")
_NULL = ("", "(null)", "N/A", "none", "None")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTP]?)i?B?")
_GPU = re.compile(r"gpu(?::(?![0-9]+(?:\(|$))([^:(,]+))?(?::([0-9]+))?(?:\([^)]*\))?")
_TIME = re.compile(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,2}(?:\.[0-9]{1,9})?)")


class UnreadableError(ValueError):
    """A line that Slurm's commands do not print."""


# --- scontrol


def record(line: str) -> Record:
    """One line of `scontrol --oneliner show ...`. Of a node, what follows its reason is left out."""
    match = _REASON.search(line) if line.startswith("NodeName=") else None
    # a reason is free text: nothing in it may pass for a field
    fields = line[: match.start()] if match else line
    keys = list(_KEY.finditer(fields))
    ends = [key.start() for key in keys[1:]] + [len(fields)]
    entry = {key.group(1): fields[key.end() : end].strip() for key, end in zip(keys, ends)}
    return {**entry, "Reason": match.group(1)} if match else entry


def records(text: str, key: str) -> dict[str, Record]:
    """All lines of `scontrol --oneliner show ...` by the value of `key` (NodeName, PartitionName, ...)."""
    entries = (record(line) for line in text.split("\n"))
    return {entry[key]: entry for entry in entries if key in entry}


def config(text: str) -> Record:
    """`scontrol show config`, the cgroup section included."""
    pairs = (line.partition("=") for line in text.split("\n"))
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def pinged(text: str) -> dict[str, bool]:
    """Whether each controller answers, in the order of slurm.conf, from `scontrol ping`."""
    return {name: word == "UP" for name, word in _PINGED.findall(text)}


def running_version(text: str) -> str:
    """slurmctld's own version from `scontrol show config`, '' where it did not answer."""
    return config(text).get("SLURM_VERSION", "")


def nodes(text: str) -> list[dict[str, Any]]:
    """Nodes from `scontrol --oneliner --details show node`, in Slurm's order."""
    return [_node(line) for line in text.split("\n") if line.startswith("NodeName=")]


def _node(line: str) -> dict[str, Any]:
    entry, match = record(line), _REASON.search(line)
    reason_text, user, since = match.groups()[1:] if match else ("", "", "")
    return {
        "name": entry["NodeName"],
        "state": entry.get("State", "UNKNOWN"),
        "reason": reason_text,
        "reason_user": user,
        "reason_since": since,
        "cpus": number(entry, "CPUTot"),
        "alloc_cpus": number(entry, "CPUAlloc"),
        "memory_mb": number(entry, "RealMemory"),
        "alloc_memory_mb": number(entry, "AllocMem"),
        "gres": present(entry.get("Gres", "")),
        "gpus": gpu_count(entry.get("Gres", "")),
        "alloc_gpus": gpu_count(entry.get("GresUsed", "")),
        "partitions": [name for name in present(entry.get("Partitions", "")).split(",") if name],
        "version": present(entry.get("Version", "")),
    }


# --- squeue


def rows(text: str, columns: str) -> list[list[str]]:
    """Lines of `squeue --format=COLUMNS`, split at its bars; those with other bars in them are left out."""
    bars = columns.count("|")
    return [line.split("|") for line in text.splitlines() if line.count("|") == bars and line]


def jobs(text: str) -> list[dict[str, Any]]:
    """Jobs from `squeue --noheader --format=JOB_FORMAT`; an array's waiting tasks are one. Raises UnreadableError."""
    return [_job(line) for line in text.split("\n") if line]


def _job(line: str) -> dict[str, Any]:
    fields = _JOB.fullmatch(line.strip())
    if not fields:
        raise UnreadableError(f"squeue printed {line[:80]!r}, which is not a job")
    job, user, state, partition, where = fields.groups()
    return {"id": job, "user": user, "state": state, "partition": partition, "nodes": _names(present(where))}


def _names(text: str) -> list[str]:
    try:
        return expand(text)
    except ValueError as error:
        raise UnreadableError(str(error)) from error


# --- values


def present(value: str | None) -> str:
    """The value, or '' where Slurm prints one of its words for nothing."""
    return "" if value is None or value in _NULL else value


def reason(node: Mapping[str, str]) -> str:
    """Why a node is as it is, in Slurm's or a person's words; '' without any."""
    # a comment has no line of its own
    return present(node.get("Reason", "")).split(" Comment=")[0]


def would_start(text: str) -> int | None:
    """When a job would start, from what `sbatch --test-only` prints with times as numbers; None where it would not."""
    match = _STARTS.search(text)
    return int(match[1]) if match else None


def clean(text: str, longest: int = 200) -> str:
    """User-supplied text without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])


def whole(text: str) -> int | None:
    """`12`; None for `N/A`, `Unknown` and all else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def number(entry: Mapping[str, str], key: str) -> int:
    """A count in a record, 0 where it is missing."""
    return whole(entry.get(key, "")) or 0


def size(text: str, unit: str = "") -> int | None:
    """`12K`, `3.5G` in bytes; `unit` is that of a number without one: M in scontrol and squeue. None for none."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * (1 << _UNITS[match[2] or unit])) if match else None


def seconds(text: str) -> float | None:
    """A time that was used, `1-02:03:04` or `02:03.456`; None for no time."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    days, hours, minute = (int(match[place] or 0) for place in (1, 2, 3))
    return ((days * 24 + hours) * 60 + minute) * 60 + float(match[4])


def minutes(text: str) -> int | None:
    """A time limit in minutes, rounded up; None for no limit. ValueError when it is not a valid time."""
    value = text.strip()
    if value.upper() in ("", "UNLIMITED", "INFINITE", "NOT_SET", "NONE"):
        return None
    total = slurm_words.seconds(value)
    if total is None:
        raise ValueError(f"no time: {text}")
    return -(-total // 60)


def clock(total: int) -> str:
    """Minutes in the form Slurm prints: `2-00:00:00`."""
    return duration(total * 60)


def duration(total: int) -> str:
    """Seconds in the same form."""
    days, rest = divmod(total, 86_400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def tres(text: str) -> Record:
    """`cpu=4,mem=2000M,gres/gpu:h100=2` by name."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {name: value for name, separator, value in pairs if separator}


def gpus_of_tres(values: Mapping[str, str]) -> dict[str, int]:
    """{type: count}; '' counts those without a type."""
    prefix = "gres/gpu:"
    typed = {name[len(prefix) :]: number(values, name) for name in values if name.startswith(prefix)}
    untyped = number(values, "gres/gpu") - sum(typed.values())
    return {**typed, **({"": untyped} if untyped > 0 else {})}


def gpus(gres: str) -> dict[str, int]:
    """{type: count} of `gpu:h100:4(S:0-1),gpu:2(IDX:0,3)`; '' for those without a type. Only GPUs are counted."""
    counts: dict[str, int] = {}
    # commas stand between resources, and within their brackets
    for word in re.split(r",(?![^(]*\))", present(gres)):
        match = _GPU.fullmatch(word)
        if match:
            counts[match[1] or ""] = counts.get(match[1] or "", 0) + int(match[2] or 1)
    return counts


def gpu_count(gres: str) -> int:
    """How many GPUs a Gres= value names, of any type."""
    return sum(gpus(gres).values())
