"""Curated sets of packages for `wheels add @NAME`, with what they took when they were last fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepopsctl.errors import InputError
from deepopsctl.text.values import suggest

MARK = "@"


@dataclass(frozen=True, slots=True)
class WheelSet:
    """What is asked of pip; the size (MiB) and number of wheels for Python 3.13 on x86_64 in November 2026."""

    packages: tuple[str, ...]
    size_mib: int
    count: int


SETS = {
    "pytorch": WheelSet(("torch", "torchaudio", "torchvision"), 3968, 31),
    "rapids": WheelSet(("cudf-cu13", "cugraph-cu13", "cuml-cu13"), 3209, 102),
    "jax": WheelSet(("jax[cuda12]",), 3209, 21),
    "science": WheelSet(("jupyterlab", "matplotlib", "numpy", "pandas", "scikit-learn", "scipy"), 140, 106),
}


def expanded(requirements: Sequence[str]) -> tuple[list[str], list[str]]:
    """The requirements with the packages of each set in its place, and what to say of the sets beforehand."""
    packages: list[str] = []
    notes = []
    for text in requirements:
        if not text.startswith(MARK):
            packages.append(text)
            continue
        name = text.removeprefix(MARK)
        chosen = SETS.get(name)
        if chosen is None:
            raise InputError.single("wheels add", f"{text} is not a set of packages", suggest(name, SETS))
        packages += chosen.packages
        size = f"about {chosen.count} wheels, {chosen.size_mib} MiB here and in the wheelhouse"
        what = f"{', '.join(chosen.packages)} and what they need"
        notes.append(f"{text}: {what}, {size}: {minutes(chosen.size_mib)} at 100 Mbit/s")
    return packages, notes


def minutes(size_mib: int) -> str:
    """How long that takes through a line of 100 Mbit/s."""
    return f"{max(round(size_mib * 2**20 * 8 / 1e8 / 60), 1)} min"
