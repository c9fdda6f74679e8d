"""MIG: the slices of GPUs, which of them fit together, and their device files.

A GPU's memory has 8 parts (A30 and RTX PRO 6000: 4). A profile takes 1, 2, 4 or 8 of them, beginning at a multiple of
that number; the last compute slice of a GPU with 8 parts does not exist, so at most 7 slices fit.

The driver's number of a slice can't be predicted: published lists of `nvidia-smi mig -lgi` differ from
one A100 to the next. Its device files do follow from that number (/proc/driver/nvidia-caps/mig-minors, where
`gpu0/gi7/access` is 66 and `gpu1/gi7/access` 201).
Sources: NVIDIA MIG user guide (supported profiles and placements, device nodes), mig-parted's example configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# /dev/nvidia-caps/nvidia-cap1 and 2 are for configuration and monitoring; then each GPU has 15 instances of 9 files
_FIRST_MINOR = 3
_MINORS_PER_INSTANCE = 9
INSTANCES_PER_GPU = 15


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A MIG profile: how many of the GPU's `parts` of memory a slice uses, and how many slices fit."""

    name: str
    size: int
    count: int
    parts: int = 8
    media: bool = False

    @property
    def gres(self) -> str:
        """The name in a gres type: Slurm's lists are comma-separated words, so `1g.5gb+me` becomes `1g.5gb.me`."""
        return self.name.replace("+", ".")

    @property
    def starts(self) -> tuple[int, ...]:
        """The possible start positions."""
        most = _most(self.name, self.size, self.parts)
        return tuple(range(0, self.parts, self.size))[:most]


def slice_files(gpu_file: str, minor: int, instance: int) -> tuple[str, ...]:
    """The device files that a job needs to use a slice with one compute instance; `minor` is the N of /dev/nvidiaN."""
    cap = _FIRST_MINOR + (minor * INSTANCES_PER_GPU + instance) * _MINORS_PER_INSTANCE
    return (gpu_file, *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in (cap, cap + 1)))


def fit(profiles: Sequence[MigProfile]) -> bool:
    """Whether one GPU can hold all these slices."""
    if any(sum(other.name == one.name for other in profiles) > one.count for one in profiles):
        return False
    return _fit(sorted(profiles, key=lambda profile: -profile.size), frozenset())


def _fit(wanted: Sequence[MigProfile], used: frozenset[int]) -> bool:
    if not wanted:
        return True
    first, *rest = wanted
    places = (frozenset(range(start, start + first.size)) for start in first.starts)
    return any(_fit(rest, used | parts) for parts in places if not parts & used)


def compute_slices(name: str) -> int:
    """The 3 of `3g.20gb`."""
    return int(name.partition("g")[0])


def _most(name: str, size: int, parts: int) -> int:
    # the 7 compute slices run out before 8 parts of memory do
    return 7 // compute_slices(name) if parts == 8 and size < parts else parts // size


def _family(*names: str) -> Mapping[str, MigProfile]:
    """Profiles of a GPU with 8 parts: 1g, 1g with twice the memory, 2g, 3g, 4g, 7g."""
    sizes = (1, 2, 2, 4, 4, 8)
    plain = [
        MigProfile(name, size, min(_most(name, size, 8), 8 // size)) for name, size in zip(names, sizes, strict=True)
    ]
    return _with_media(plain)


def _quarters(*names: str) -> Mapping[str, MigProfile]:
    """Profiles of a GPU with 4 parts: 1g, 2g, 4g."""
    plain = [MigProfile(name, size, 4 // size, parts=4) for name, size in zip(names, (1, 2, 4), strict=True)]
    return _with_media(plain)


def _with_media(plain: Sequence[MigProfile]) -> Mapping[str, MigProfile]:
    """One slice of a GPU may have its media engines (`+me`)."""
    first = plain[0]
    media = MigProfile(f"{first.name}+me", first.size, 1, first.parts, media=True)
    return {profile.name: profile for profile in (first, media, *plain[1:])}


FAMILIES: Mapping[str, Mapping[str, MigProfile]] = {
    "a30": _quarters("1g.6gb", "2g.12gb", "4g.24gb"),
    "40gb": _family("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "80gb": _family("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "94gb": _family("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    "96gb": _family("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    "141gb": _family("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "144gb": _family("1g.18gb", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"),
    "b200": _family("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    "gb200": _family("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
    "b300": _family("1g.34gb", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"),
    "gb300": _family("1g.35gb", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"),
    "rtxpro6000": _quarters("1g.24gb", "2g.48gb", "4g.96gb"),
}
