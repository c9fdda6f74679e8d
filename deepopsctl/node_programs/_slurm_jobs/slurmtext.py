"""Read what Slurm's tools print: pure functions over text."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional

# the key must follow a blank: CfgTRES=cpu=2 is one pair
_KEY = re.compile(r"(?:(?<=\s)|^)([A-Za-z][A-Za-z0-9_:/.()]*)=")
_NULL = ("", "(null)", "N/A", "none", "None")
_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
Record = Dict[str, str]


class Gres(NamedTuple):
    """One kind of GPU of a node: type '' when untyped."""

    type: str
    amount: int


def record(line: str) -> Record:
    """One line of `scontrol -o show ...` as a dict."""
    matches = list(_KEY.finditer(line))
    ends = [match.start() for match in matches[1:]] + [len(line)]
    return {match.group(1): line[match.end() : end].strip() for match, end in zip(matches, ends)}


def records(text: str, key: str) -> Dict[str, Record]:
    """All lines of `scontrol -o show ...` by the value of `key` (NodeName, PartitionName, ...)."""
    parsed = [record(line) for line in text.splitlines()]
    return {entry[key]: entry for entry in parsed if key in entry}


def config(text: str) -> Record:
    """`scontrol show config` as a dict, the cgroup section included."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def present(value: Optional[str]) -> str:
    """The value, or '' where Slurm prints one of its words for nothing."""
    return "" if value is None or value in _NULL else value


def reason(node: Mapping[str, str]) -> str:
    """Why a node is as it is, in Slurm's or a person's words; '' without any."""
    # a comment has no line of its own in `scontrol -o`
    return present(node.get("Reason", "")).split(" Comment=")[0]


def gpus(gres: str) -> List[Gres]:
    """GPUs of a Gres= value: `gpu:a100:2(S:0),shard:8` gives one Gres('a100', 2)."""
    entries = []
    for part in re.split(r",(?![^(]*\))", present(gres)):
        fields = part.split("(")[0].split(":")
        if fields[0] != "gpu":
            continue
        count = fields[-1] if fields[-1].isdigit() else "1"
        entries.append(Gres(fields[1] if len(fields) > 1 and not fields[1].isdigit() else "", int(count)))
    return entries


def gpu_count(gres: str) -> int:
    """How many GPUs a Gres= value names, of any type."""
    return sum(entry.amount for entry in gpus(gres))


def minutes(text: str) -> Optional[int]:
    """A Slurm time limit in minutes, rounded up; None for no limit. ValueError when it is no time."""
    value = text.strip()
    if value.upper() in ("", "UNLIMITED", "INFINITE", "NOT_SET", "NONE"):
        return None
    match = re.match(r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$", value)
    if not match:
        raise ValueError("no time: {}".format(text))
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    if days is not None:
        seconds = days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return -(-seconds // 60)


def clock(total: int) -> str:
    """Minutes in the form Slurm prints: `2-00:00:00`."""
    days, rest = divmod(total, 1440)
    text = "{:02d}:{:02d}:00".format(*divmod(rest, 60))
    return "{}-{}".format(days, text) if days else text


def mebibytes(text: str) -> int:
    """`32G`, `64000M` or `64000` in MiB."""
    match = re.match(r"^(\d+(?:\.\d+)?)([KMGT]?)", text.strip().upper())
    if not match:
        raise ValueError("no amount of memory: {}".format(text))
    return int(float(match.group(1)) * _UNITS[match.group(2) or "M"])


def number(entry: Mapping[str, str], key: str) -> int:
    """A count in a record, 0 where it is missing."""
    text = present(entry.get(key, ""))
    return int(text) if text.isdigit() else 0
