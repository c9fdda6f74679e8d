"""`gpus:` of a node set in cluster.yml: one or several groups, checked alone and together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepopsctl.gpus import gres
from deepopsctl.gpus.mig_profiles import INSTANCES_PER_GPU
from deepopsctl.gpus.models import models_of, profiles_of
from deepopsctl.gpus.notation import MAX_GPUS, default_files, expand_files, parse_gpus
from deepopsctl.model.cluster import GpuGroup, Gpus, MigLayout, MigSlices
from deepopsctl.text.answers import listed
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.values import suggest

Path = tuple[str | int, ...]
Refuse = Callable[[Path, RefusedError], None]

_CORES = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_LINKS = re.compile(r"-?[0-9]{1,4}(,-?[0-9]{1,4})*")
_MIG_HINT = 'write {"1g.5gb": 7}, or a list with one entry for each GPU'
_INSTANCES_HINT = 'write autodetect: nvml, or the numbers of `nvidia-smi mig -lgi`: {"2g.10gb": [3, 5]}'
_MOST_SLICES = 7


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """One entry of `gpus:` as written, with its path; not checked yet."""

    path: Path
    type: str
    count: str
    mig: object = None
    files: object = None
    cores: object = None
    links: object = None


def parse_autodetect(text: str) -> str:
    """`nvml`, or '' for off."""
    if text.lower() not in ("", "off", gres.NVML):
        raise RefusedError(f"{shorten(text)!r} is not a way to detect GPUs", "write nvml or off")
    return text.lower().replace("off", "")


def read_gpus(entries: Sequence[WrittenGroup], autodetect: str, refuse: Refuse) -> Gpus | None:
    """The GPUs of a node from its entries; None if any was refused."""
    read: list[GpuGroup | None] = []
    for entry in entries:
        read.append(_read_group(entry, sum(group.count for group in read if group), autodetect, refuse))
    groups = [group for group in read if group]
    if len(groups) < len(entries):
        return None
    faults = [*_together(entries, groups), *_links_fit(entries, groups), *_detectable(entries, groups, autodetect)]
    for path, refusal in faults:
        refuse(path, refusal)
    return None if faults else combine(groups, autodetect)


def combine(groups: Sequence[GpuGroup], autodetect: str = "") -> Gpus:
    """Combine groups of GPUs; `groups` stays empty if type and count describe them fully."""
    total = sum(group.count for group in groups)
    plain = GpuGroup(groups[0].type, total, default_files(0, total))
    types = {group.type for group in groups}
    only = groups[0].type if len(types) == 1 else ""
    return Gpus(only, total, () if tuple(groups) == (plain,) else tuple(groups), autodetect)


def join_groups(plain: Sequence[Gpus]) -> Gpus:
    """Combine whole GPUs of several types, numbered in this order."""
    groups: list[GpuGroup] = []
    for gpus in plain:
        if any(group.type == gpus.type for group in groups):
            raise RefusedError(f"{gpus.type} is given twice", "give how many a node has of each type once")
        first = sum(group.count for group in groups)
        groups.append(GpuGroup(gpus.type, gpus.count, default_files(first, gpus.count)))
    if sum(group.count for group in groups) > MAX_GPUS:
        raise RefusedError(f"more than {MAX_GPUS} GPUs in one node", "check the numbers")
    return combine(groups)


def _read_group(entry: WrittenGroup, first: int, autodetect: str, refuse: Refuse) -> GpuGroup | None:
    try:
        plain = parse_gpus(entry.type, entry.count)
    except RefusedError as refusal:
        refuse(entry.path, refusal)
        return None
    readers: dict[str, Callable[[], tuple[object, ...]]] = {
        "mig": lambda: _read_mig(entry.mig, plain, autodetect),
        "files": lambda: _read_files(entry.files, plain.count),
        "cores": lambda: _read_cores(entry.cores, plain.count),
        "links": lambda: _read_links(entry.links, plain.count),
    }
    fields: dict[str, object] = {}
    for key, read in readers.items():
        if not getattr(entry, key):
            continue
        try:
            fields[key] = _refuse_with_autodetect(key) if autodetect and key != "mig" else read()
        except RefusedError as refusal:
            refuse((*entry.path, key), refusal)
    if len(fields) < sum(bool(getattr(entry, key)) for key in readers):
        return None
    files = fields.pop("files", None) or default_files(first, plain.count)
    return GpuGroup(plain.type, plain.count, files, **fields)  # type: ignore[arg-type]  # each reader gives its own field


def _refuse_with_autodetect(key: str) -> tuple[object, ...]:
    raise RefusedError(f"AutoDetect finds {key} itself", "leave it out, or write autodetect: off")


def _read_mig(value: object, plain: Gpus, autodetect: str) -> tuple[MigLayout, ...]:
    """The layout of each GPU, from one layout for all or a list."""
    layouts = value if isinstance(value, list) else [value] * plain.count
    if len(layouts) != plain.count:
        raise RefusedError(f"{len(layouts)} layouts for {plain.count} GPUs", _MIG_HINT)
    read = {id(layout): _read_layout(layout, plain.type, autodetect) for layout in layouts}
    parsed = tuple(read[id(layout)] for layout in layouts)
    if not any(parsed):
        raise RefusedError("no GPU has a slice", "leave mig out for whole GPUs")
    return parsed


def _read_layout(layout: object, gpu_type: str, autodetect: str) -> MigLayout:
    if layout is None or layout == {}:
        return ()
    if not isinstance(layout, Mapping):
        raise RefusedError("must be profiles with their numbers", _MIG_HINT)
    slices = tuple(_read_slices(str(name), value, gpu_type) for name, value in layout.items())
    if profiles_of(gpu_type) and not gres.fits(gpu_type, slices):
        _refuse_layout(gpu_type, slices)
    numbers = [number for cut in slices for number in cut.instances]
    if len(numbers) > len(set(numbers)):
        raise RefusedError("a slice's number is given twice", "take them from `nvidia-smi mig -lgi` (Instance ID)")
    if not autodetect and not all(cut.instances for cut in slices):
        raise RefusedError("the driver chooses the slices' device files", _INSTANCES_HINT)
    return slices


def _read_slices(name: str, value: object, gpu_type: str) -> MigSlices:
    """The slices with one profile, from a count or their numbers."""
    _check_profile(name, gpu_type)
    numbers = listed(value)
    if not numbers or not all(re.fullmatch("[0-9]{1,2}", str(number)) for number in numbers):
        raise RefusedError(f"{name}: {shorten(str(value))!r} is not a number of slices", _MIG_HINT)
    read = tuple(int(str(number)) for number in numbers)
    if not isinstance(value, list):
        if not 1 <= read[0] <= _MOST_SLICES:
            raise RefusedError(f"{name}: {read[0]} slices", f"a GPU has 1 to {_MOST_SLICES} of one profile")
        return MigSlices(name, read[0])
    if max(read) >= INSTANCES_PER_GPU:
        raise RefusedError(f"{name}: {max(read)} is not a slice's number", f"they go from 0 to {INSTANCES_PER_GPU - 1}")
    return MigSlices(name, len(read), read)


def _refuse_layout(gpu_type: str, layout: MigLayout) -> None:
    """Refuse a layout that no GPU of this type supports, with the reason."""
    profiles = gres.family_of(gpu_type, layout)
    if not profiles:
        hint = f"variants of {gpu_type} have {' or '.join(', '.join(known) for known in gres.families(gpu_type))}"
        raise RefusedError(f"no variant of {gpu_type} has all of {', '.join(cut.profile for cut in layout)}", hint)
    text = ", ".join(f"{cut.count} x {cut.profile}" for cut in layout)
    limits = ", ".join(f"{profiles[cut.profile].count} x {cut.profile}" for cut in layout)
    more = ", fewer of them together" if len(layout) > 1 else ""
    raise RefusedError(f"{text} do not fit on one {gpu_type}", f"at most {limits}{more}")


def _check_profile(name: str, gpu_type: str) -> None:
    known = profiles_of(gpu_type)
    if not gpu_type or (models_of(gpu_type) and not known):
        what = f"{gpu_type} has no MIG" if gpu_type else "slices need a type"
        raise RefusedError(what, "leave mig out" if gpu_type else "say which GPU it is: {type: a100, ...}")
    if (known and name not in known) or not re.fullmatch(r"[1-7]g\.[0-9]{1,3}gb(\+me)?", name):
        raise RefusedError(f"{gpu_type} has no MIG profile {shorten(name)!r}", suggest(name, known or ("1g.10gb",)))


def _read_files(value: object, count: int) -> tuple[str, ...]:
    files = tuple(file for text in listed(value) for file in expand_files(str(text)))
    if len(files) != count:
        raise RefusedError(f"{len(files)} device files for {count} GPUs", "name one file for each GPU")
    return files


def _each(value: object, count: int, pattern: re.Pattern[str], what: str, example: str) -> tuple[str, ...]:
    """The text of each GPU, from one text for all or a list."""
    texts = value if isinstance(value, list) else [value] * count
    if len(texts) != count:
        raise RefusedError(f"{len(texts)} entries for {count} GPUs", "give one for all, or one for each GPU")
    for text in texts:
        if not isinstance(text, str) or not pattern.fullmatch(text):
            raise RefusedError(f"{shorten(str(text))!r} are not {what}", f"write {example}")
    return tuple(texts)


def _read_cores(value: object, count: int) -> tuple[str, ...]:
    """The cores of each GPU, from one text for all or a list."""
    texts = _each(value, count, _CORES, "cores", "0-31")
    for text in texts:
        if any(int(last) < int(first) for first, last in _RANGE.findall(text)):
            raise RefusedError(f"{text!r} runs backwards", "write 0-31")
    return texts


def _read_links(value: object, count: int) -> tuple[str, ...]:
    """The row of link numbers of each GPU, as text or as a list."""
    rows = listed(value)
    texts = [",".join(map(str, row)) if isinstance(row, list) else row for row in rows]
    if len(texts) != count:
        raise RefusedError(f"{len(texts)} rows of links for {count} GPUs", 'one for each GPU: ["-1,4", "4,-1"]')
    return _each(texts, count, _LINKS, "links", '["-1,4", "4,-1"]: connections to each GPU, -1 for itself')


def _together(entries: Sequence[WrittenGroup], groups: Sequence[GpuGroup]) -> list[tuple[Path, RefusedError]]:
    """Problems between the groups."""
    faults: list[tuple[Path, RefusedError]] = []
    if len(groups) > 1 and not all(group.type for group in groups):
        entry = entries[next(index for index, group in enumerate(groups) if not group.type)]
        faults.append(
            (entry.path, RefusedError("has no type", "with several entries, each needs a type: {type: a40, ...}"))
        )
    if sum(group.count for group in groups) > MAX_GPUS:
        faults.append((entries[-1].path, RefusedError(f"more than {MAX_GPUS} GPUs in one node", "check the numbers")))
    seen: set[str] = set()
    for entry, group in zip(entries, groups, strict=True):
        twice = [file for file in group.files if file in seen] or _repeated(group.files)
        if twice:
            refusal = RefusedError(f"{', '.join(twice[:3])} is given twice", "give every GPU its own device file")
            faults.append(((*entry.path, "files") if entry.files else entry.path, refusal))
        seen.update(group.files)
        if group.mig and any(gres.minor(file) is None for file in group.files):
            refusal = RefusedError("slices need /dev/nvidiaN", "their own device files are numbered by that N")
            faults.append(((*entry.path, "files"), refusal))
        if group.mig and group.links:
            refusal = RefusedError("slices have no links", "leave links out where there is mig")
            faults.append(((*entry.path, "links"), refusal))
    return faults


def _repeated(files: Sequence[str]) -> list[str]:
    return [file for index, file in enumerate(files) if file in files[:index]]


def _links_fit(entries: Sequence[WrittenGroup], groups: Sequence[GpuGroup]) -> list[tuple[Path, RefusedError]]:
    """Every row of links has a number for each GPU of the node, -1 for the GPU itself."""
    total, itself, faults = sum(group.count for group in groups), set[int](), []
    for entry, group in zip(entries, groups, strict=True):
        for row in group.links:
            numbers = [int(number) for number in row.split(",")]
            own = [index for index, number in enumerate(numbers) if number == -1]
            if len(numbers) != total or len(own) != 1 or own[0] in itself or min(numbers) < -1:
                refusal = RefusedError(
                    f"{shorten(row)!r} does not fit {total} GPUs", "a number for each GPU of the node, -1 for itself"
                )
                faults.append(((*entry.path, "links"), refusal))
                break
            itself.add(own[0])
    return faults


def _detectable(
    entries: Sequence[WrittenGroup], groups: Sequence[GpuGroup], autodetect: str
) -> list[tuple[Path, RefusedError]]:
    """AutoDetect searches for the type in the detected name: the match must be unique."""
    faults = []
    for entry, group in zip(entries if autodetect else (), groups, strict=False):
        names = [model.detected_type for model in models_of(group.type)]
        others = [other.type for other in groups if other.type != group.type and other.type in group.type]
        if group.mig and any(not layout for other in groups for layout in other.mig or ((),)):
            what, hint = (
                "AutoDetect can't distinguish whole GPUs from slices",
                "cut all GPUs of the node, or autodetect: off",
            )
        elif not group.mig and names and not any(group.type.lower() in name for name in names):
            what, hint = f"AutoDetect calls this GPU {names[0]}, not {group.type}", "write autodetect: off"
        elif others:
            what, hint = f"AutoDetect can't distinguish {group.type} from {others[0]}", "write autodetect: off"
        else:
            continue
        faults.append((entry.path, RefusedError(what, hint)))
    return faults
