"""hardware.yml: detected hardware of the nodes, folded for review.

A node that is down keeps its stored entry; rendering never queries a node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from deepopsctl.errors import InputError
from deepopsctl.files import read_text, write_atomic
from deepopsctl.gpus.discovery import DetectedGpu, as_stored, from_stored
from deepopsctl.text import node_sets
from deepopsctl.text.yaml_reader import duplicate_keys

HEADER = """\
# What deepopsctl found on the nodes, in Slurm's terms; slurm.conf is rendered from it.
# Written by `deepopsctl deploy` when it meets a node for the first time; review it, keep it in git.
# To have a node looked at again, delete its line (or its name) and deploy. GPUs are what its driver found, once there
# was one; their cores and links go to gres.conf where cluster.yml does not give any.
"""


NUMBERS = ("cpus", "boards", "sockets", "cores_per_socket", "threads_per_core", "memory_mb")
CGROUPS = ("v1", "v2", "none")
# a petabyte in MiB; Slurm's own numbers have 32 bits for CPUs
_MOST = 1 << 30

# slurmd's key -> field name
SLURMD_KEYS = {
    "CPUs": "cpus",
    "Boards": "boards",
    "SocketsPerBoard": "sockets",
    "CoresPerSocket": "cores_per_socket",
    "ThreadsPerCore": "threads_per_core",
    "RealMemory": "memory_mb",
}


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """One node as `slurmd -C` reports it; memory in MiB; cgroup is v1, v2, or none where slurmd may not use it.

    `gpus` are those that the node's driver detects; () if not queried.
    """

    cpus: int
    boards: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mb: int
    cgroup: str = "v2"
    gpus: tuple[DetectedGpu, ...] = ()

    def __post_init__(self) -> None:
        # it is written into a file that speaks for all nodes, and a node may answer with any text
        if self.cgroup not in CGROUPS:
            raise ValueError(f"cgroup is one of {', '.join(CGROUPS)}, not {self.cgroup!r}")
        for field in NUMBERS:
            _positive(field, getattr(self, field))

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> NodeHardware:
        """Parse the data of `as_facts`."""
        return cls(**{**facts, "gpus": tuple(DetectedGpu(**gpu) for gpu in facts.get("gpus", ()))})

    def as_facts(self) -> dict[str, object]:
        """Plain data for templates."""
        return {**asdict(self), "gpus": [asdict(gpu) for gpu in self.gpus]}


def parse_slurmd_report(text: str, cgroup: str) -> NodeHardware:
    """The hardware in the first line of `slurmd -C`; ValueError if a key is missing."""
    report = dict(re.findall(r"(\w+)=(\S+)", text))
    missing = [key for key in SLURMD_KEYS if key not in report and key != "Boards"]
    if missing:
        raise ValueError(f"slurmd -C did not report {', '.join(missing)}")
    values = {field: _positive(field, int(report.get(key, "1"))) for key, field in SLURMD_KEYS.items()}
    # slurm.conf needs the sockets of the whole node
    values["sockets"] *= values["boards"]
    return _node(values, cgroup)


def estimate_hardware(lscpu: str, meminfo: str, cgroup: str) -> NodeHardware:
    """Estimate slurmd's report from lscpu and /proc/meminfo, before it is installed. Raises ValueError."""
    lines = dict(re.findall(r"^([^:\n]+):\s+(\d+)(?: kB)?$", f"{lscpu}\n{meminfo}", re.MULTILINE))
    try:
        return NodeHardware(
            cpus=_positive("cpus", int(lines["CPU(s)"])),
            boards=1,
            sockets=_positive("sockets", int(lines["Socket(s)"])),
            cores_per_socket=_positive("cores_per_socket", int(lines["Core(s) per socket"])),
            threads_per_core=_positive("threads_per_core", int(lines["Thread(s) per core"])),
            memory_mb=_positive("memory_mb", int(lines["MemTotal"]) // 1024),
            cgroup=cgroup,
        )
    except KeyError as error:
        raise ValueError(f"neither lscpu nor /proc/meminfo reports {error}") from error


def load_hardware(path: Path) -> dict[str, NodeHardware]:
    """Stored hardware by node name; a missing file is an empty store. Raises InputError."""
    if not path.exists():
        return {}
    where = path.name
    try:
        text = read_text(path)
        # first, because its errors have the right line; the C parser reports the last one
        document = yaml.safe_load(text) or {}
        twice = next(duplicate_keys(yaml.compose(text, Loader=yaml.CSafeLoader)), None)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise InputError.single(f"{where}{line}", "is not valid YAML", _restore_hint(path)) from error
    if twice is not None:
        place = f"{where}:{twice.start_mark.line + 1}"
        raise InputError.single(place, f"the key {twice.value} is given twice", _restore_hint(path))
    if not isinstance(document, dict) or not isinstance(document.get("nodes", []), list):
        raise InputError.single(where, "is not a hardware file: it needs a list `nodes:`", _restore_hint(path))
    stored: dict[str, NodeHardware] = {}
    for position, entry in enumerate(document.get("nodes", [])):
        try:
            names, hardware = _parse_entry(entry)
        except ValueError as error:
            raise InputError.single(where, f"nodes[{position}]: {error}", _restore_hint(path)) from error
        stored.update(dict.fromkeys(names, hardware))
    return stored


def dump_hardware(hardware: Mapping[str, NodeHardware]) -> str:
    """The file's text: nodes with equal hardware folded into one line, deterministic."""
    groups: dict[NodeHardware, list[str]] = {}
    for name in sorted(hardware):
        groups.setdefault(hardware[name], []).append(name)
    lines = [HEADER, "schema: 1", "nodes:" if groups else "nodes: []"]
    for values, names in sorted(groups.items(), key=lambda item: item[1][0]):
        fields = ", ".join(f"{field}: {getattr(values, field)}" for field in (*NUMBERS, "cgroup"))
        # JSON is YAML, and quotes any product name
        gpus = f",\n     gpus: {json.dumps(as_stored(values.gpus))}" if values.gpus else ""
        lines.append(f'  - {{names: "{node_sets.fold(names)}", {fields}{gpus}}}')
    return "\n".join(lines) + "\n"


def store_hardware(path: Path, hardware: Mapping[str, NodeHardware]) -> bool:
    """Write the file if its content changes, atomically; returns whether it changed."""
    text = dump_hardware(hardware)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    write_atomic(path, text)
    return True


def _parse_entry(entry: object) -> tuple[tuple[str, ...], NodeHardware]:
    """Names and hardware of one entry; raises ValueError if it is invalid."""
    if not isinstance(entry, dict):
        raise ValueError("is not a node entry: it needs names and hardware")  # noqa: TRY004 (one kind for all faults)
    missing = [field for field in ("names", *NUMBERS, "cgroup") if field not in entry]
    if missing:
        raise ValueError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    numbers = {field: _positive(field, entry[field]) for field in NUMBERS}
    gpus = from_stored(entry["gpus"]) if entry.get("gpus") else ()
    return node_sets.expand(str(entry["names"])), _node(numbers, str(entry["cgroup"]), gpus)


def _node(numbers: Mapping[str, int], cgroup: str, gpus: tuple[DetectedGpu, ...] = ()) -> NodeHardware:
    cpus, boards, sockets, cores, threads, memory = (numbers[field] for field in NUMBERS)
    return NodeHardware(cpus, boards, sockets, cores, threads, memory, cgroup, gpus)


def _positive(field: str, value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{field} is {value!r}, which is not a number above 0")
    if value > _MOST:
        raise ValueError(f"{field} is above {_MOST}, which no node has")
    return value


def _restore_hint(path: Path) -> str:
    return f"restore it from git, or delete {path} and deploy: deploy detects the nodes again"
