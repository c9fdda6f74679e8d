"""Gres= of slurm.conf combined with gres.conf: the device files, cores and links of each GPU type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deepopsctl.cluster.builder import DraftNode
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.gpus.gres import Device, fits, gres_counts, minor
from deepopsctl.gpus.mig_profiles import INSTANCES_PER_GPU, slice_files
from deepopsctl.gpus.notation import expand_files, parse_gpus
from deepopsctl.gpus.spec import combine, join_groups
from deepopsctl.imports.slurm_lines import Line
from deepopsctl.model.cluster import GpuGroup, Gpus, MigLayout, MigSlices
from deepopsctl.text.node_sets import expand, shorten
from deepopsctl.text.problems import RefusedError

_READ = frozenset(
    {"nodename", "name", "type", "file", "multiplefiles", "count", "autodetect", "cores", "cpus", "links"}
)
_CORES = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_LINKS = re.compile(r"-?[0-9]{1,4}(,-?[0-9]{1,4})*")
_SLICE = re.compile(r"(?:(?:nvidia[_-])?([a-z0-9]+)[_.-])?(?:mig-)?([1-7]g\.[0-9]{1,3}gb)(?:[+.](me))?", re.IGNORECASE)
_CAP = re.compile(r"/dev/nvidia-caps/nvidia-cap([0-9]{1,6})")
_MIG_HINT = "write them as `gpus: {type: a100, count: 1, mig: {...}}` in cluster.yml: docs/deploy/mig.md"
_NODE_HINT = "compare gpus: in cluster.yml with the node"


def read_gpus(gres: str, where: str, name: str, carryover: Carryover) -> Gpus | None:
    """The GPUs of a Gres= value, with notes on other resources."""
    by_type: dict[str, Gpus] = {}
    for item in re.split(r",(?![^(]*\))", gres):
        resource, _, rest = item.partition("(")[0].strip().partition(":")
        if resource.lower() != "gpu":
            if item.strip():
                carryover.leave(f"Gres={item}", where, f"{name}: only GPUs are managed", "`slurm: {}` has no Gres")
            continue
        words = [word for word in rest.split(":") if word != "no_consume"]
        count = words.pop() if words and re.fullmatch(r"[0-9]+", words[-1]) else "1"
        if count == "0":
            continue
        gpus = parse_gpus(words[0] if words else "", count)
        if gpus.type in by_type or (by_type and not (gpus.type and all(by_type))):
            carryover.leave(f"Gres={item}", where, f"{name}: with several GPU types, each needs its own type")
            continue
        by_type[gpus.type] = gpus
    return join_groups(list(by_type.values())) if by_type else None


def settle_gpus(
    draft_nodes: Mapping[str, DraftNode], lines: Sequence[Line], cores: Mapping[str, int], carryover: Carryover
) -> None:
    """Add the devices of gres.conf to the GPUs of Gres=; nodes, and their numbers of cores, by name in lower case."""
    notes = _Notes(carryover)
    gres_lines: list[tuple[frozenset[str], _GresLine]] = []
    for line in lines:
        try:
            read = _read(line, notes)
            # nodes have short names, also where Slurm has their full ones
            names = expand(line.get("nodename")) if line.get("nodename") else None
            nodes = None if names is None else frozenset(name.partition(".")[0].lower() for name in names)
        except RefusedError as refusal:
            notes.leave(
                f"{line.pairs[0].key}={shorten(line.pairs[0].value)}", line.where, refusal.message, refusal.hint
            )
            continue
        if read:
            gres_lines.append((frozenset() if nodes is None else nodes, read))
            on = nodes if nodes is not None else draft_nodes.keys()
            if not any(draft_nodes[name].gpus for name in on if name in draft_nodes):
                reason = "no Gres= in slurm.conf declares GPUs there"
                notes.leave(f"Name={read.line.get('name') or 'gpu'}", line.where, reason, "add them by --gpus")
    for node in draft_nodes.values():
        if node.gpus:
            mine = [read for nodes, read in gres_lines if not nodes or node.name.lower() in nodes]
            known = cores.get(node.name.lower(), 0)
            node.gpus = _Node(node.name, node.where, node.gpus, mine, known, notes).gpus()


@dataclass(frozen=True, slots=True)
class _GresLine:
    """One GPU line of gres.conf, and its devices."""

    line: Line
    devices: tuple[Device, ...]


@dataclass(slots=True)
class _Notes:
    """Adds every note once, however many nodes it is for."""

    carryover: Carryover
    noted: set[tuple[str, str, str]] = field(default_factory=set)

    def leave(self, name: str, where: str, reason: str, hint: str = "") -> None:
        if self._is_new(name, where, reason):
            self.carryover.leave(name, where, reason, hint)

    def check(self, name: str, where: str, reason: str, hint: str = "") -> None:
        if self._is_new(name, where, reason):
            self.carryover.check(name, where, reason, hint)

    def _is_new(self, name: str, where: str, reason: str) -> bool:
        note = (name, where, reason)
        new = note not in self.noted
        self.noted.add(note)
        return new


def _read(line: Line, notes: _Notes) -> _GresLine | None:
    """The devices of a line; None if it is not about GPUs."""
    for pair in line.pairs:
        if pair.name == "autodetect" and pair.value.lower() != "off":
            reason = "GPUs are declared in cluster.yml, not detected"
            notes.leave(f"AutoDetect={pair.value}", line.where, reason, "`autodetect: nvml` of a node asks slurmd to")
        elif pair.name not in _READ:
            notes.leave(pair.key, line.where, f"gres.conf is generated, {shorten(pair.value)} is not part of it")
    name = line.get("name")
    if name and name.lower() != "gpu":
        notes.leave(f"Name={name}", line.where, "only GPUs are managed")
        return None
    if not name and not line.get("file") and not line.get("multiplefiles"):
        return None
    gpu_type, cores, links = line.get("type"), line.get("cores") or line.get("cpus"), line.get("links")
    if cores and not _CORES.fullmatch(cores):
        notes.leave(f"Cores={shorten(cores)}", line.where, "they are not numbers of cores")
        cores = ""
    if links and not _LINKS.fullmatch(links):
        notes.leave(f"Links={shorten(links)}", line.where, "they are not numbers of links")
        links = ""
    files = [file for part in _parts(line.get("file")) for file in expand_files(part)]
    if any(minor(file) is None and not _CAP.fullmatch(file) for file in files):
        notes.leave(f"File={line.get('file')}", line.where, "GPUs are /dev/nvidia0 and so on")
        files = []
    together = tuple(file for part in _parts(line.get("multiplefiles")) for file in expand_files(part))
    devices = [Device(gpu_type, (file,), cores, links) for file in files]
    return _GresLine(line, (*devices, *([Device(gpu_type, together, cores, links)] if together else [])))


def _highest(cores: str) -> int:
    """The highest number in `0-3,8-11`, -1 where there is none."""
    return max(map(int, re.findall("[0-9]+", cores)), default=-1)


def _parts(text: str) -> list[str]:
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


@dataclass(frozen=True, slots=True)
class _Node:
    """The GPUs of one node: `declared` in slurm.conf, its lines of gres.conf, and its cores (0: unknown)."""

    name: str
    where: str
    declared: Gpus
    lines: Sequence[_GresLine]
    cores: int
    notes: _Notes

    @property
    def place(self) -> str:
        """The location of the node's first line in gres.conf, else in slurm.conf."""
        return self.lines[0].line.where if self.lines else self.where

    def gpus(self) -> Gpus | None:
        """The GPUs for cluster.yml; None if they can't be determined."""
        counts = gres_counts(self.declared)
        devices = [device for gres_line in self.lines for device in gres_line.devices]
        if any(_SLICE.fullmatch(gpu_type) for gpu_type in counts):
            return self._with_slices(counts, devices)
        if not devices:
            self._note_unknown_files(counts)
            return self.declared
        by_type = self._by_type(counts, devices)
        if by_type is None:
            return self.declared
        groups = [self._group(gpu_type, mine) for gpu_type, mine in by_type.items()]
        return combine(self._with_links(groups, by_type, devices))

    def _note_unknown_files(self, counts: Mapping[str, int]) -> None:
        if len(counts) > 1:
            reason = f"no device files are specified for {' and '.join(counts)}: they are numbered in this order"
            self.notes.check("Gres", self.place, reason, _NODE_HINT)

    def _by_type(self, counts: Mapping[str, int], devices: Sequence[Device]) -> dict[str, list[Device]] | None:
        """The devices of each declared type, in the order of gres.conf; None if the files disagree."""
        types = {device.type for device in devices}
        if len(counts) == 1:
            (gpu_type,) = counts
            if not gpu_type and any(types):
                name = f"Type={', '.join(sorted(filter(None, types)))}"
                reason = "Gres= in slurm.conf names no type"
                self.notes.leave(name, self.place, reason, "add it to gpus: in cluster.yml")
            devices_of = {gpu_type: [device for device in devices if not gpu_type or device.type in ("", gpu_type)]}
        else:
            devices_of = {gpu_type: [device for device in devices if device.type == gpu_type] for gpu_type in counts}
            order = {device.type: index for index, device in reversed(list(enumerate(devices)))}
            devices_of = dict(sorted(devices_of.items(), key=lambda pair: order.get(pair[0], len(devices))))
        files = [device.files for mine in devices_of.values() for device in mine]
        short = [gpu_type for gpu_type, mine in devices_of.items() if len(mine) < counts[gpu_type]]
        if short or len(set(files)) < len(files):
            what = f"Gres= has {counts[short[0]]} of them" if short else "a device is listed twice"
            name = f"File= of {short[0] or 'gpu'}" if short else "File="
            self.notes.leave(name, self.place, f"{what}: devices are numbered in the order of Gres=", _NODE_HINT)
            return None
        for gpu_type, mine in devices_of.items():
            if len(mine) > counts[gpu_type]:
                name, count = gpu_type or "gpu", counts[gpu_type]
                reason = f"slurm.conf has {count} of {name}, gres.conf {len(mine)}: the first {count} are used"
                self.notes.check("File", self.place, reason, _NODE_HINT)
        return {gpu_type: mine[: counts[gpu_type]] for gpu_type, mine in devices_of.items()}

    def _group(self, gpu_type: str, mine: Sequence[Device]) -> GpuGroup:
        cores = tuple(device.cores for device in mine)
        beyond = next((text for text in cores if self.cores and _highest(text) >= self.cores), "")
        if beyond:
            reason = f"{self.name} has cores 0-{self.cores - 1}: were these numbers of threads?"
            self.notes.leave(f"Cores={beyond}", self.place, reason, "deploy finds them")
            cores = ()
        elif any(cores):
            if all(cores):
                reason = "Slurm takes the cores of whole sockets only; without them in cluster.yml, deploy finds them"
                self.notes.check("Cores", self.place, reason, "compare them with `lscpu` on the node")
            else:
                self.notes.leave("Cores", self.place, f"not every {gpu_type or 'GPU'} has some", "deploy finds them")
        return GpuGroup(
            gpu_type, len(mine), tuple(device.files[0] for device in mine), cores=cores if all(cores) else ()
        )

    def _with_links(
        self, groups: Sequence[GpuGroup], by_type: Mapping[str, Sequence[Device]], devices: Sequence[Device]
    ) -> Sequence[GpuGroup]:
        """The groups with Links, if these fit the order of the GPUs in cluster.yml."""
        ordered = [device for mine in by_type.values() for device in mine]
        rows = [device.links.split(",") for device in ordered]
        if not any(device.links for device in ordered):
            return groups
        if ordered != list(devices) or any(row[index : index + 1] != ["-1"] for index, row in enumerate(rows)):
            self.notes.leave("Links", self.place, "they do not fit the order of the GPUs", "deploy finds them")
            return groups
        if any(len(row) != len(rows) for row in rows):
            self.notes.leave("Links", self.place, f"{len(rows)} GPUs need {len(rows)} numbers", "deploy finds them")
            return groups
        return [
            GpuGroup(
                group.type, group.count, group.files, cores=group.cores, links=tuple(device.links for device in mine)
            )
            for group, mine in zip(groups, by_type.values(), strict=True)
        ]

    def _with_slices(self, counts: Mapping[str, int], devices: Sequence[Device]) -> Gpus | None:
        """GPUs with MIG slices; the slices' numbers follow from the device files."""
        try:
            gpus = combine(list(_cut_groups(counts, devices)))
        except RefusedError as refusal:
            sliced = ", ".join(gpu_type for gpu_type in counts if _SLICE.fullmatch(gpu_type))
            self.notes.leave(f"Gres=gpu:{sliced}", self.place, f"slices (MIG): {refusal.message}", _MIG_HINT)
            return None
        renamed = set(counts) - set(gres_counts(gpus))
        if renamed:
            now = ", ".join(f"gpu:{gpu_type}" for gpu_type in gres_counts(gpus) if gpu_type not in counts)
            was = ", ".join(f"gpu:{gpu_type}" for gpu_type in sorted(renamed))
            self.notes.check("Gres", self.place, f"{was} becomes {now}", "notify users who request it with --gres")
        return gpus


def _cut_groups(counts: Mapping[str, int], devices: Sequence[Device]) -> Iterator[GpuGroup]:
    """A group for each GPU model, with the slices of each GPU; RefusedError if anything is unknown."""
    cards: dict[str, dict[str, dict[str, list[int]]]] = {}
    for gpu_type, count in counts.items():
        mine = [device for device in devices if device.type == gpu_type]
        if len(mine) != count:
            raise RefusedError(f"gres.conf has device files for {len(mine)} of {count} {gpu_type or 'GPUs'}")
        match = _SLICE.fullmatch(gpu_type)
        for device in mine:
            if match:
                file, number = _slice_of(device)
                cards.setdefault((match[1] or "").lower(), {}).setdefault(file, {})
                profile = match[2].lower() + ("+me" if match[3] else "")
                cards[(match[1] or "").lower()][file].setdefault(profile, []).append(number)
            else:
                cards.setdefault(gpu_type, {})[device.files[0]] = {}
    if "" in cards:
        raise RefusedError("their type does not say of which GPU they are")
    files = [file for card in cards.values() for file in card]
    if len(files) != len(set(files)):
        raise RefusedError("a device is listed twice")
    for gpu_type, gpus in cards.items():
        order = sorted(gpus, key=lambda file: minor(file) or 0)
        mig = tuple(_layout(gpus[file]) for file in order)
        wrong = next((layout for layout in mig if layout and not fits(gpu_type, layout)), None)
        if wrong:
            raise RefusedError(f"{', '.join(cut.profile for cut in wrong)} do not fit on one {gpu_type}")
        yield GpuGroup(gpu_type, len(order), tuple(order), mig=mig if any(mig) else ())


def _layout(cut: Mapping[str, list[int]]) -> MigLayout:
    return tuple(MigSlices(profile, len(numbers), tuple(sorted(numbers))) for profile, numbers in sorted(cut.items()))


def _slice_of(device: Device) -> tuple[str, int]:
    """The GPU's device file and the slice's instance number."""
    gpu = next((file for file in device.files if minor(file) is not None), "")
    caps = sorted(int(match[1]) for file in device.files if (match := _CAP.fullmatch(file)))
    for number in range(INSTANCES_PER_GPU) if gpu else ():
        if slice_files(gpu, minor(gpu) or 0, number)[1:] == tuple(f"/dev/nvidia-caps/nvidia-cap{cap}" for cap in caps):
            return gpu, number
    raise RefusedError(f"{shorten(', '.join(device.files))} are not the files of one slice")
