"""The control groups of Slurm's jobs on this node, version 1 and 2, and what they count.

Sources: cgroup_v2 and cgroup.conf(5) of Slurm 22.05, 24.11 and 26.05; the kernel's cgroup-v1 and cgroup-v2 documents.
From 26.05 on a job's group has the name of its SLUID, before that of its number.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = "/sys/fs/cgroup"
# slurmd's own slice may be another, and a build for several slurmd puts the node's name before
_V2 = ("system.slice/*slurmstepd.scope/", "*slurmstepd.scope/", "*.slice/*slurmstepd.scope/")
_V1 = ("slurm/uid_*/", "slurm_*/uid_*/")
_JOB = re.compile(r"job_([0-9]{1,10})|(s[0-9A-Z]{13})")
_CONTROLLERS = ("memory", "cpuacct", "cpuset")
# version 1 has a number for no limit, the largest multiple of a page
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Usage:
    """A job's usage and limits on this node; None for values that its cgroups lack. Seconds, bytes."""

    cpu_seconds: float | None = None
    memory: int | None = None
    memory_limit: int | None = None
    cpus: int | None = None


def find(root: str = ROOT) -> dict[str, Usage]:
    """The jobs on this node, by number or by SLUID, and their use."""
    second = os.path.join(root, "cgroup.controllers")
    return dict(_second(root) if os.path.exists(second) else _first(root))


def _second(root: str) -> Iterator[tuple[str, Usage]]:
    for name, directory in _jobs(root, _V2):
        usec = _table(directory, "cpu.stat").get("usage_usec")
        yield (
            name,
            Usage(
                cpu_seconds=None if usec is None else usec / 1e6,
                memory=_used(_table(directory, "memory.stat"), "anon", "shmem"),
                memory_limit=_limit(_read(directory, "memory.max")),
                cpus=_cpus(_read(directory, "cpuset.cpus")),
            ),
        )


def _first(root: str) -> Iterator[tuple[str, Usage]]:
    where: dict[str, dict[str, str]] = {}
    for controller in _CONTROLLERS:
        for name, directory in _jobs(os.path.join(root, controller), _V1):
            where.setdefault(name, {})[controller] = directory
    for name, directories in where.items():
        used = _number(_read(directories.get("cpuacct"), "cpuacct.usage"))
        memory = directories.get("memory")
        yield (
            name,
            Usage(
                cpu_seconds=None if used is None else used / 1e9,
                memory=_used(_table(memory, "memory.stat"), "total_rss", "total_shmem"),
                memory_limit=_limit(_read(memory, "memory.limit_in_bytes")),
                cpus=_cpus(_read(directories.get("cpuset"), "cpuset.cpus")),
            ),
        )


def _jobs(root: str, places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for place in places:
        for directory in glob.glob(os.path.join(glob.escape(root), place)):
            for entry in _entries(directory):
                match = _JOB.fullmatch(entry)
                if match:
                    yield match[1] or match[2], os.path.join(directory, entry)


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _read(directory: str | None, name: str) -> str:
    # a job may end between two reads
    if directory is None:
        return ""
    try:
        with open(os.path.join(directory, name), encoding="ascii", errors="replace") as stream:
            return stream.read(1 << 16).strip()
    except OSError:
        return ""


def _table(directory: str | None, name: str) -> dict[str, int]:
    pairs = (line.split() for line in _read(directory, name).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _used(table: dict[str, int], own: str, shared: str) -> int | None:
    """Memory of processes. The cgroup's usage includes page cache, which can be reclaimed."""
    return table[own] + table.get(shared, 0) if own in table else None


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _limit(text: str) -> int | None:
    number = _number(text)
    return None if number is None or number >= _NO_LIMIT else number


def _cpus(text: str) -> int | None:
    """How many CPUs `0-3,8` are."""
    count = 0
    for part in filter(None, text.split(",")):
        ends = part.split("-")
        if len(ends) > 2 or not all(end.isdigit() for end in ends):
            return None
        count += int(ends[-1]) - int(ends[0]) + 1
    return count or None
