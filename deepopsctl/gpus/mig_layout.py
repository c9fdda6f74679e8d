"""The MIG layout of a node's GPUs: what cluster.yml declares for Slurm, in the driver's terms.

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
class DesiredGpu:
    """One GPU, by the N of /dev/nvidiaN: its slices in creation order, () for a whole GPU.

    `numbers` are the driver's instance numbers if gres.conf names the device files; empty if Slurm detects them.
    """

    minor: int
    slices: tuple[str, ...] = ()
    numbers: Mapping[str, tuple[int, ...]] | None = None

    def as_object(self) -> dict[str, object]:
        """As plain data for the node."""
        numbers = {name: list(instances) for name, instances in (self.numbers or {}).items()}
        return {"minor": self.minor, "slices": list(self.slices), "numbers": numbers}


def desired_gpus(gpus: Gpus | None) -> tuple[DesiredGpu, ...]:
    """The declared GPUs with device files /dev/nvidiaN."""
    if gpus is None:
        return ()
    if not gpus.groups:
        return tuple(DesiredGpu(number) for number in range(gpus.count))
    desired = []
    for group in gpus.groups:
        for index, file in enumerate(group.files):
            number = minor(file)
            if number is not None:
                desired.append(_desired_gpu(number, group.type, group.mig[index] if group.mig else ()))
    return tuple(desired)


def _desired_gpu(number: int, gpu_type: str, layout: MigLayout) -> DesiredGpu:
    profiles = family_of(gpu_type, layout)
    sizes = {cut.profile: profiles[cut.profile].size if cut.profile in profiles else 0 for cut in layout}
    # 4g before 3g: both take half of the memory, and only one half will do for 4g
    ordered = sorted(layout, key=lambda cut: (-sizes[cut.profile], -compute_slices(cut.profile), cut.profile))
    slices = tuple(cut.profile for cut in ordered for _ in range(cut.count))
    return DesiredGpu(number, slices, {cut.profile: cut.instances for cut in ordered if cut.instances})
