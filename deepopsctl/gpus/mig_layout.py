"""How each GPU of a node is to be cut (MIG): what cluster.yml declares for Slurm, as the driver is told it.

NVIDIA's MIG user guide wants large slices named first: the driver places one after the other, and a small one in the
middle would leave no room for a large one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deepopsctl.gpus.gres import family_of, minor
from deepopsctl.gpus.mig_profiles import compute_slices
from deepopsctl.model.cluster import Gpus, MigLayout


@dataclass(frozen=True, slots=True)
class GpuWish:
    """One GPU, by the N of /dev/nvidiaN: its slices in the order to make them, () for a whole one.

    `numbers` are the driver's for slices whose device files gres.conf names; empty where Slurm finds them itself.
    """

    minor: int
    slices: tuple[str, ...] = ()
    numbers: Mapping[str, tuple[int, ...]] | None = None

    def as_object(self) -> dict[str, object]:
        """As the node is told."""
        numbers = {name: list(given) for name, given in (self.numbers or {}).items()}
        return {"minor": self.minor, "slices": list(self.slices), "numbers": numbers}


def wishes(gpus: Gpus | None) -> tuple[GpuWish, ...]:
    """One for each declared GPU that is a /dev/nvidiaN."""
    if gpus is None:
        return ()
    if not gpus.kinds:
        return tuple(GpuWish(number) for number in range(gpus.count))
    found = []
    for kind in gpus.kinds:
        for index, file in enumerate(kind.files):
            number = minor(file)
            if number is not None:
                found.append(_wish(number, kind.type, kind.mig[index] if kind.mig else ()))
    return tuple(found)


def _wish(number: int, kind: str, layout: MigLayout) -> GpuWish:
    profiles = family_of(kind, layout)
    sizes = {cut.profile: profiles[cut.profile].size if cut.profile in profiles else 0 for cut in layout}
    # 4g before 3g: both take half of the memory, and only one half will do for 4g
    ordered = sorted(layout, key=lambda cut: (-sizes[cut.profile], -compute_slices(cut.profile), cut.profile))
    slices = tuple(cut.profile for cut in ordered for _ in range(cut.count))
    return GpuWish(number, slices, {cut.profile: cut.instances for cut in ordered if cut.instances})
