"""GPUs of a node as plain data: to cluster.yml and the inventory, and from the inventory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from deepopsctl.model.cluster import GpuGroup, Gpus, MigLayout, MigSlices
from deepopsctl.text.answers import listed, texts
from deepopsctl.text.node_sets import expand, shorten
from deepopsctl.text.problems import RefusedError

_FILES = re.compile(r"(/dev/[A-Za-z0-9_./-]*?)(?:([0-9]+)|\[([0-9,-]+)\])?")
MAX_GPUS = 256


def default_files(first: int, count: int) -> tuple[str, ...]:
    """NVIDIA's device files of `count` GPUs, starting at number `first`."""
    return tuple(f"/dev/nvidia{number}" for number in range(first, first + count))


def expand_files(text: str) -> tuple[str, ...]:
    """`/dev/nvidia[0-3]` as single files."""
    match = _FILES.fullmatch(text)
    if not match:
        raise RefusedError(f"{shorten(text)!r} is not a device file", "write /dev/nvidia0 or /dev/nvidia[0-3]")
    stem, number, ranges = match.groups()
    if ranges is None:
        return (stem + (number or ""),)
    files: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        good = all(re.fullmatch(r"[0-9]{1,4}", end) for end in ends) and int(ends[0]) <= int(ends[1])
        if not good or int(ends[1]) - int(ends[0]) >= MAX_GPUS:
            raise RefusedError(f"{shorten(text)!r} has no good range", "write /dev/nvidia[0-3] or /dev/nvidia[0,2-3]")
        files += [f"{stem}{number}" for number in range(int(ends[0]), int(ends[1]) + 1)]
    return tuple(files)


def fold_files(files: Sequence[str]) -> str:
    """Device files for gres.conf, in order: `/dev/nvidia[0-3]`, or comma-separated without a common stem."""
    parts = [re.fullmatch(r"(.*?)([0-9]+)", file) for file in files]
    numbered = [(match[1], int(match[2])) for match in parts if match and str(int(match[2])) == match[2]]
    if len(files) < 2 or len(numbered) < len(files) or len({stem for stem, _ in numbered}) > 1:
        return ",".join(files)
    numbers = [number for _, number in numbered]
    return f"{numbered[0][0]}[{','.join(_ranges(numbers))}]"


def as_written(gpus: Gpus) -> object:
    """The value of `gpus:` in cluster.yml: one entry, or a list."""
    if not gpus.groups:
        return _plain(gpus.type, gpus.count)
    entries, first = [], 0
    for group in gpus.groups:
        entries.append(_group_entry(group, first))
        first += group.count
    return entries[0] if len(entries) == 1 else entries


def for_inventory(gpus: Gpus, gres: str) -> dict[str, object]:
    """The inventory value for roles: type and count of the cards; for several groups also `kinds` and Slurm's Gres=."""
    entry: dict[str, object] = {"type": gpus.type, "count": gpus.count}
    if gpus.groups:
        written = as_written(gpus)
        entry |= {"gres": gres, "kinds": [*listed(written)]}
    if gpus.autodetect:
        entry["autodetect"] = gpus.autodetect
    return entry


def from_inventory(entry: Mapping[str, object]) -> Gpus | None:
    """The GPUs that `for_inventory` wrote."""
    count = int(str(entry.get("count") or 0))
    if not count:
        return None
    groups: list[GpuGroup] = []
    written = entry.get("kinds") or []
    if not isinstance(written, list):
        raise TypeError("gpus: kinds must be a list")
    for item in written:
        groups.append(_read_group(item, sum(other.count for other in groups)))
    return Gpus(str(entry.get("type") or ""), count, tuple(groups), str(entry.get("autodetect") or ""))


def declared_by_node(node_sets: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By node, from `slurm_nodes`: cards, device files where they are not the usual ones, whether cut into slices."""
    declared: dict[str, dict[str, Any]] = {}
    for entry in node_sets:
        gpus = from_inventory(entry.get("gpus") or {})
        if gpus is None:
            continue
        files = [path for group in gpus.groups for path in group.files]
        # `1g.10gb` as a type: slices that are declared as if they were GPUs
        sliced = "g." in gpus.type or any(group.mig or "g." in group.type for group in gpus.groups)
        node_gpus = {"cards": gpus.count, "files": files, "sliced": sliced}
        declared.update(dict.fromkeys(expand(entry["names"]), node_gpus))
    return declared


def parse_gpus(gpu_type: str, count: str) -> Gpus:
    """Parse Slurm's gres type ('' for none) and the number of GPUs per node."""
    if gpu_type and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", gpu_type):
        raise RefusedError(f"{shorten(gpu_type)!r} is not a GPU type", "write a short model name: h100")
    if not re.fullmatch(r"[0-9]{1,9}", count) or not 1 <= int(count) <= MAX_GPUS:
        raise RefusedError(
            f"{shorten(count)!r} is not a number of GPUs", f"give how many one node has, 1 to {MAX_GPUS}"
        )
    return Gpus(gpu_type, int(count))


def _ranges(numbers: Iterable[int]) -> list[str]:
    """Runs of consecutive numbers, in their order."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def _plain(gpu_type: str, count: int) -> dict[str, object]:
    return {"type": gpu_type, "count": count} if gpu_type else {"count": count}


def _group_entry(group: GpuGroup, first: int) -> dict[str, object]:
    entry = _plain(group.type, group.count)
    if group.mig:
        layouts = [{cut.profile: list(cut.instances) or cut.count for cut in layout} for layout in group.mig]
        entry["mig"] = layouts[0] if all(layout == layouts[0] for layout in layouts) else layouts
    if group.files != default_files(first, group.count):
        text = fold_files(group.files)
        entry["files"] = list(group.files) if "," in text and "[" not in text else text
    if group.cores:
        entry["cores"] = group.cores[0] if len(set(group.cores)) == 1 else list(group.cores)
    if group.links:
        entry["links"] = list(group.links)
    return entry


def _read_group(entry: object, first: int) -> GpuGroup:
    if not isinstance(entry, Mapping):
        raise TypeError("gpus: every kind must be a mapping")
    count = int(entry["count"])
    files = [entry["files"]] if isinstance(entry.get("files"), str) else entry.get("files") or []
    return GpuGroup(
        type=str(entry.get("type") or ""),
        count=count,
        files=tuple(file for text in files for file in expand_files(text)) or default_files(first, count),
        mig=_read_layouts(entry.get("mig"), count),
        cores=_each(entry.get("cores"), count),
        links=tuple(entry.get("links") or ()),
    )


def _read_layouts(value: object, count: int) -> tuple[MigLayout, ...]:
    if not value:
        return ()
    return tuple(_read_layout(layout) for layout in (value if isinstance(value, list) else [value] * count))


def _read_layout(layout: object) -> MigLayout:
    if not isinstance(layout, Mapping):
        raise TypeError("gpus: mig must have profiles with their numbers")
    return tuple(
        MigSlices(str(name), len(instances), tuple(instances))
        if isinstance(instances, list)
        else MigSlices(str(name), int(instances))
        for name, instances in layout.items()
    )


def _each(value: object, count: int) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) * count
    return texts(value)
