"""GPUs of a node in Slurm's terms: Gres= of the node, gres types, lines of gres.conf.

Source: gres.conf(5) of Slurm 22.05, 24.11 and 25.11. A slice of a GPU (MIG) has several device files, which are given
by MultipleFiles instead of File; Links is for lines with one device; Cores are logical core numbers (`lstopo -l`).
With AutoDetect=nvml slurmd finds files, cores and links itself, and takes a Type that is part of the name it found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from deepopsctl.gpus.mig_profiles import MigProfile, fit, slice_files
from deepopsctl.gpus.models import models_of
from deepopsctl.gpus.notation import default_files, fold_files
from deepopsctl.model.cluster import GpuGroup, Gpus, MigLayout

NVML = "nvml"


@dataclass(frozen=True, slots=True)
class Device:
    """One device that Slurm allocates: a GPU, or a slice of one."""

    type: str
    files: tuple[str, ...]
    cores: str = ""
    links: str = ""


def gres_value(gpus: Gpus) -> str:
    """Slurm's Gres=: `gpu:h100:8`, `gpu:2`, `gpu:a40:2,gpu:l40s:2`."""
    return ",".join(
        ":".join(["gpu", *([gpu_type] if gpu_type else []), str(count)])
        for gpu_type, count in gres_counts(gpus).items()
    )


def gres_counts(gpus: Gpus) -> dict[str, int]:
    """The count of each gres type of a node; slices have their own types, '' is for untyped GPUs."""
    counts: dict[str, int] = {}
    for group in groups_of(gpus):
        for layout in group.mig or ((),) * group.count:
            pieces = [(_slice_type(group.type, cut.profile, gpus.autodetect), cut.count) for cut in layout]
            for name, many in pieces or [(group.type, 1)]:
                counts[name] = counts.get(name, 0) + many
    return counts


def describe_gpus(gpus: Gpus) -> str:
    """GPUs for messages: `h100:8`, `a40:2+l40s:2`."""
    return "+".join(":".join(filter(None, (gpu_type, str(count)))) for gpu_type, count in gres_counts(gpus).items())


def conf_entries(gpus: Gpus) -> list[dict[str, object]]:
    """The fields of a node's lines in gres.conf, without NodeName; identical devices share a line."""
    if gpus.autodetect:
        return [{"AutoDetect": gpus.autodetect}]
    entries = []
    devices = [device for group in groups_of(gpus) for device in _devices(group)]
    for _, run in groupby(enumerate(devices), key=lambda pair: _line_key(*pair)):
        members = [device for _, device in run]
        entry: dict[str, object] = {"Name": "gpu"}
        if members[0].type:
            entry["Type"] = members[0].type
        if len(members[0].files) > 1:
            entry["MultipleFiles"] = ",".join(members[0].files)
        else:
            entry["File"] = fold_files([device.files[0] for device in members])
        entry |= {key: text for key, text in (("Cores", members[0].cores), ("Links", members[0].links)) if text}
        entries.append(entry)
    return entries


def device_names(gpus: Gpus) -> list[str]:
    """Slurm's devices in the order of gres.conf by their GPUs' minor numbers, slices as `0.7`; [] if unknown."""
    names = []
    for group in () if gpus.autodetect else groups_of(gpus):
        for index, file in enumerate(group.files):
            number, layout = minor(file), group.mig[index] if group.mig else ()
            if number is None:
                return []
            names += [f"{number}.{instance}" for cut in layout for instance in cut.instances] or [str(number)]
    return names


def fits(gpu_type: str, layout: MigLayout) -> bool:
    """Whether a GPU of this type can have this MIG layout."""
    profiles = family_of(gpu_type, layout)
    return bool(profiles) and fit([profiles[cut.profile] for cut in layout for _ in range(cut.count)])


def family_of(gpu_type: str, layout: MigLayout) -> Mapping[str, MigProfile]:
    """The profiles of the variant of a GPU that supports all profiles of a layout; {} for none."""
    return next((known for known in families(gpu_type) if all(cut.profile in known for cut in layout)), {})


def families(gpu_type: str) -> list[Mapping[str, MigProfile]]:
    """The sets of MIG profiles of a type's variants, which differ in memory."""
    profiles = {model.family: model.mig for model in models_of(gpu_type) if model.family}
    return list(profiles.values())


def minor(file: str) -> int | None:
    """The N of /dev/nvidiaN; it determines the device files of the GPU's slices."""
    match = re.fullmatch(r"/dev/nvidia([0-9]{1,3})", file)
    return int(match[1]) if match else None


def groups_of(gpus: Gpus) -> tuple[GpuGroup, ...]:
    """The groups of identical GPUs; one group if type and count describe them fully."""
    return gpus.groups or (GpuGroup(gpus.type, gpus.count, default_files(0, gpus.count)),)


def expected_gpus(gpus: Gpus | None) -> dict[str, object]:
    """The node's cards, and the number of devices that Slurm has for them; {} for none.

    `minor` is the N of /dev/nvidiaN, None if slurmd detects the files or they have other names; `products` are
    nvidia-smi's names of that type, empty for unknown types; `others` are variants with more or less memory.
    """
    if gpus is None:
        return {}
    cards: list[dict[str, object]] = []
    for group in groups_of(gpus):
        products = [model.product for model in models_of(group.type)]
        # the table may lack a variant such as `NVIDIA H100 64GB HBM2e`: compare by model
        plain = next((model.type for model in models_of(group.type)), group.type)
        others = [model.product for model in models_of(plain) if model.product not in products]
        for file in group.files:
            number = None if gpus.autodetect else minor(file)
            cards.append({"minor": number, "type": plain, "products": products, "others": others})
    return {
        "words": describe_gpus(gpus),
        "cards": cards,
        "devices": sum(gres_counts(gpus).values()),
    }


def _slice_type(gpu_type: str, profile: str, autodetect: str) -> str:
    # AutoDetect calls a slice `nvidia_a100-sxm4-40gb_1g.5gb`; our type must be a part of that name
    return profile.partition("+")[0] if autodetect else f"{gpu_type}_{profile.replace('+', '.')}"


def _devices(group: GpuGroup) -> list[Device]:
    devices = []
    for index, file in enumerate(group.files):
        cores = group.cores[index] if group.cores else ""
        layout = group.mig[index] if group.mig else ()
        number = minor(file)
        if not layout:
            devices.append(Device(group.type, (file,), cores, group.links[index] if group.links else ""))
        elif number is not None:
            for cut in layout:
                name = _slice_type(group.type, cut.profile, "")
                devices += [Device(name, slice_files(file, number, instance), cores) for instance in cut.instances]
    return devices


def _line_key(index: int, device: Device) -> tuple[object, ...]:
    alone = len(device.files) > 1 or device.links
    return (device.type, device.cores, index if alone else -1)
