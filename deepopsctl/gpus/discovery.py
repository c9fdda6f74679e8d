"""The GPUs that a node's driver detects, from the output of nvidia-smi and lscpu, for gres.conf.

Sources: nvidia-smi(1), public records of `nvidia-smi topo -m`, gres.conf(5). Slurm refuses a node whose Cores do not
end where its sockets end (`doesn't match socket boundaries`): a GPU's cores are always those of a whole socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from deepopsctl.gpus import gres
from deepopsctl.gpus.models import find_product
from deepopsctl.gpus.notation import MAX_GPUS
from deepopsctl.model.cluster import GpuGroup, Gpus
from deepopsctl.text.answers import listed, mapping

# Commands to run on a GPU node, by the name of the answer; failed commands have no answer.
PROBES: Mapping[str, tuple[str, ...]] = {
    "gpu_names": ("nvidia-smi", "--query-gpu=index,name,pci.bus_id", "--format=csv,noheader"),
    "gpu_minors": ("sh", "-c", "grep -H '^Device Minor' /proc/driver/nvidia/gpus/*/information"),
    "gpu_topology": ("nvidia-smi", "topo", "-m"),
    "cpu_sockets": ("lscpu", "--parse=CPU,SOCKET,NODE"),
}
# if a site sets one of these, lscpu does not describe the node's cores
_TOPOLOGY = frozenset(
    {"boards", "corespersocket", "cpus", "procs", "sockets", "socketsperboard", "threadspercore", "parameters"}
)
_FIELDS = frozenset({"model", "cores", "links"})
# a name is the node's word, and goes into hardware.yml
_UNPRINTABLE, _LONGEST = re.compile(r"[^ -~]"), 100


@dataclass(frozen=True, slots=True)
class DetectedGpu:
    """One GPU: nvidia-smi's name, Cores and Links of gres.conf; '' for unknown."""

    model: str
    cores: str = ""
    links: str = ""


def parse_detected(probes: Mapping[str, str], sockets: int, cores_per_socket: int) -> tuple[DetectedGpu, ...]:
    """The node's GPUs in the order of their device files; () without a driver, or if the files have gaps."""
    names, minors = _names(probes.get("gpu_names", "")), _minors(probes.get("gpu_minors", ""))
    by_minor = {minors[address]: (index, name) for index, (name, address) in names.items() if address in minors}
    if not by_minor or len(by_minor) < len(names) or sorted(by_minor) != list(range(len(by_minor))):
        return ()
    table = _table(probes.get("gpu_topology", ""))
    groups = _sockets(probes.get("cpu_sockets", ""), sockets)
    order = [by_minor[minor] for minor in sorted(by_minor)]
    indexes = [index for index, _ in order]
    links = {index: [_bonds(table, index, other) for other in indexes] for index in indexes}
    # identical links need no line for each GPU
    uneven = len({number for row in links.values() for number in row if number != -1}) > 1
    return tuple(
        DetectedGpu(
            name,
            _cores(table.get(index, {}).get("CPU Affinity", ""), groups, cores_per_socket),
            ",".join(map(str, links[index])) if uneven else "",
        )
        for index, name in order
    )


def fits(gpus: Gpus, detected: Sequence[DetectedGpu]) -> bool:
    """Whether the detected GPUs match cluster.yml: their number, and the type of each device file."""
    cards = [(gres.minor(file), group.type) for group in gres.groups_of(gpus) for file in group.files]
    return len(cards) == len(detected) and all(
        minor is not None and minor < len(detected) and _is(detected[minor].model, gpu_type)
        for minor, gpu_type in cards
    )


def complete(gpus: Gpus, detected: Sequence[DetectedGpu], options: Mapping[str, str]) -> Gpus:
    """The declared GPUs, with detected cores and links if cluster.yml has none and the GPUs match."""
    groups = gres.groups_of(gpus)
    if gpus.autodetect or not fits(gpus, detected) or any(key.lower() in _TOPOLOGY for key in options):
        return gpus
    order = [gres.minor(file) or 0 for group in groups for file in group.files]
    silent = not any(group.links or group.mig for group in groups)
    filled = tuple(_fill(group, detected, order if silent else ()) for group in groups)
    return gpus if filled == groups else replace(gpus, groups=filled)


def as_stored(detected: Sequence[DetectedGpu]) -> list[dict[str, object]]:
    """GPUs as in hardware.yml: identical consecutive GPUs in one entry."""
    entries = []
    for gpu, run in groupby(detected):
        plain: dict[str, object] = {"model": gpu.model, "count": len(list(run))}
        entries.append(plain | {key: text for key, text in (("cores", gpu.cores), ("links", gpu.links)) if text})
    return entries


def from_stored(entries: object) -> tuple[DetectedGpu, ...]:
    """Parse the value of `as_stored`; ValueError for anything else."""
    gpus: list[DetectedGpu] = []
    for entry in listed(entries):
        fields = {**mapping(entry)}
        count = fields.pop("count", 0)
        if (
            not fields.get("model")
            or not isinstance(count, int)
            or not 1 <= count <= MAX_GPUS
            or not set(fields) <= _FIELDS
        ):
            raise ValueError('gpus is a list of {model: "NVIDIA ...", count: 8, cores: 0-31, links: ...}')
        gpus += [DetectedGpu(**{key: str(value) for key, value in fields.items()})] * count
    return tuple(gpus)


def _names(text: str) -> dict[int, tuple[str, str]]:
    """nvidia-smi's index -> (name, PCI address as the kernel writes it)."""
    gpus = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*(\d+), (.+), ([0-9A-Fa-f]+):(\S+)\s*", line)
        if match:
            gpus[int(match[1])] = (_UNPRINTABLE.sub("?", match[2][:_LONGEST]), f"{match[3][-4:]}:{match[4]}".lower())
    return gpus


def _minors(text: str) -> dict[str, int]:
    """PCI address -> the N of /dev/nvidiaN."""
    pattern = r"gpus/([^/\n]+)/information:Device Minor:\s*(\d+)"
    return {address.lower(): int(number) for address, number in re.findall(pattern, text)}


def _table(text: str) -> dict[int, dict[str, str]]:
    """The GPU rows of `nvidia-smi topo -m` by index, with columns by name."""
    # the header is underlined
    lines = [line.split("\t") for line in re.sub(r"\x1b\[\d*m", "", text).splitlines()]
    header = next((cells for cells in lines if "CPU Affinity" in cells), [])
    rows = {}
    for cells in lines:
        match = re.fullmatch(r"GPU(\d+)", cells[0].strip())
        if match and cells is not header:
            row = zip(header, cells, strict=False)
            rows[int(match[1])] = {name.strip(): cell.strip() for name, cell in row if name.strip()}
    return rows


def _bonds(table: Mapping[int, Mapping[str, str]], one: int, other: int) -> int:
    """How many NVLinks join two GPUs; -1 for the GPU itself."""
    match = re.fullmatch(r"NV(\d+)", table.get(one, {}).get(f"GPU{other}", ""))
    return -1 if one == other else int(match[1]) if match else 0


def _sockets(text: str, sockets: int) -> list[set[int]]:
    """The CPUs of each of Slurm's sockets, in order; [] if lscpu has another number of sockets.

    Slurm's sockets may be NUMA nodes: `SlurmdParameters=numa_node_as_socket`.
    """
    rows = [line.split(",") for line in text.splitlines() if re.fullmatch(r"\d+,\d+,\d*", line)]
    for column in (1, 2):
        groups: dict[str, set[int]] = {}
        for row in rows:
            groups.setdefault(row[column], set()).add(int(row[0]))
        if len(groups) == sockets > 1:
            return sorted(groups.values(), key=min)
    return []


def _cores(affinity: str, groups: Sequence[set[int]], cores_per_socket: int) -> str:
    """The cores of the socket that a GPU is attached to; '' for none or several."""
    near = {
        number
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", affinity)
        for number in range(int(first), int(last or first) + 1)
    }
    home = [place for place, group in enumerate(groups) if near & group]
    if len(home) != 1:
        return ""
    first = home[0] * cores_per_socket
    return str(first) if cores_per_socket == 1 else f"{first}-{first + cores_per_socket - 1}"


def _is(product: str, gpu_type: str) -> bool:
    """Whether a product may be of a type. Unknown products match: the end of a deploy checks them."""
    model = find_product(product)
    return model is None or not gpu_type or model.goes_by(gpu_type)


def _fill(group: GpuGroup, detected: Sequence[DetectedGpu], order: Sequence[int]) -> GpuGroup:
    mine = [detected[gres.minor(file) or 0] for file in group.files]
    cores = group.cores or tuple(gpu.cores for gpu in mine)
    links = tuple(_reorder(gpu.links, order) for gpu in mine) if order else group.links
    return replace(group, cores=cores if any(cores) else (), links=links if any(links) else ())


def _reorder(links: str, order: Sequence[int]) -> str:
    """A row of links in the order of gres.conf, which cluster.yml may change."""
    numbers = links.split(",")
    return ",".join(numbers[minor] for minor in order) if links else ""
