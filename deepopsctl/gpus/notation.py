"""GPUs of a node as plain data, in cluster.yml and in the inventory, and back from the inventory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from deepopsctl.model.cluster import GpuKind, Gpus, MigLayout, MigSlices
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError

_FILES = re.compile(r"(/dev/[A-Za-z0-9_./-]*?)(?:([0-9]+)|\[([0-9,-]+)\])?")
MAX_GPUS = 256


def default_files(first: int, count: int) -> tuple[str, ...]:
    """The device files that NVIDIA's driver makes for `count` GPUs, beginning with number `first`."""
    return tuple(f"/dev/nvidia{number}" for number in range(first, first + count))


def expand_files(text: str) -> tuple[str, ...]:
    """`/dev/nvidia[0-3]` as single files."""
    found = _FILES.fullmatch(text)
    if not found:
        raise RefusedError(f"{shorten(text)!r} is no device file", "write /dev/nvidia0 or /dev/nvidia[0-3]")
    stem, number, ranges = found.groups()
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
    """Device files as gres.conf has them, in their order: `/dev/nvidia[0-3]`; names that share no stem by commas."""
    parts = [re.fullmatch(r"(.*?)([0-9]+)", file) for file in files]
    numbered = [(found[1], int(found[2])) for found in parts if found and str(int(found[2])) == found[2]]
    if len(files) < 2 or len(numbered) < len(files) or len({stem for stem, _ in numbered}) > 1:
        return ",".join(files)
    numbers = [number for _, number in numbered]
    return f"{numbered[0][0]}[{','.join(_ranges(numbers))}]"


def _ranges(numbers: Iterable[int]) -> list[str]:
    """Runs of consecutive numbers, in their order."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def as_written(gpus: Gpus) -> object:
    """What stands behind `gpus:` in cluster.yml: one kind, or a list of them."""
    if not gpus.kinds:
        return _plain(gpus.type, gpus.count)
    found, first = [], 0
    for kind in gpus.kinds:
        found.append(_kind(kind, first))
        first += kind.count
    return found[0] if len(found) == 1 else found


def for_inventory(gpus: Gpus, gres: str) -> dict[str, object]:
    """What roles read: type and count of the cards, and where they don't say it all the kinds and Slurm's Gres=."""
    entry: dict[str, object] = {"type": gpus.type, "count": gpus.count}
    if gpus.kinds:
        written = as_written(gpus)
        entry |= {"gres": gres, "kinds": written if isinstance(written, list) else [written]}
    if gpus.autodetect:
        entry["autodetect"] = gpus.autodetect
    return entry


def from_inventory(entry: Mapping[str, object]) -> Gpus | None:
    """The GPUs that `for_inventory` wrote."""
    count = int(str(entry.get("count") or 0))
    if not count:
        return None
    kinds: list[GpuKind] = []
    written = entry.get("kinds") or []
    if not isinstance(written, list):
        raise TypeError("gpus: kinds must be a list")
    for kind in written:
        kinds.append(_read_kind(kind, sum(other.count for other in kinds)))
    return Gpus(str(entry.get("type") or ""), count, tuple(kinds), str(entry.get("autodetect") or ""))


def _plain(kind: str, count: int) -> dict[str, object]:
    return {"type": kind, "count": count} if kind else {"count": count}


def _kind(kind: GpuKind, first: int) -> dict[str, object]:
    found = _plain(kind.type, kind.count)
    if kind.mig:
        layouts = [{cut.profile: list(cut.instances) or cut.count for cut in layout} for layout in kind.mig]
        found["mig"] = layouts[0] if all(layout == layouts[0] for layout in layouts) else layouts
    if kind.files != default_files(first, kind.count):
        text = fold_files(kind.files)
        found["files"] = list(kind.files) if "," in text and "[" not in text else text
    if kind.cores:
        found["cores"] = kind.cores[0] if len(set(kind.cores)) == 1 else list(kind.cores)
    if kind.links:
        found["links"] = list(kind.links)
    return found


def _read_kind(entry: object, first: int) -> GpuKind:
    if not isinstance(entry, Mapping):
        raise TypeError("gpus: every kind must be a mapping")
    count = int(entry["count"])
    files = [entry["files"]] if isinstance(entry.get("files"), str) else entry.get("files") or []
    return GpuKind(
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
        MigSlices(str(name), len(given), tuple(given)) if isinstance(given, list) else MigSlices(str(name), int(given))
        for name, given in layout.items()
    )


def _each(value: object, count: int) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) * count
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def parse_gpus(kind: str, count: str) -> Gpus:
    """Slurm's gres type ('' for none) and how many a node has."""
    if kind and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", kind):
        raise RefusedError(f"{shorten(kind)!r} is no GPU type", "write a short model name: h100")
    if not re.fullmatch(r"[0-9]{1,9}", count) or not 1 <= int(count) <= MAX_GPUS:
        raise RefusedError(f"{shorten(count)!r} is no number of GPUs", f"give how many one node has, 1 to {MAX_GPUS}")
    return Gpus(kind, int(count))
