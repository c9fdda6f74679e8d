"""Reference GPU units (RGU): one number for what a GPU is worth, so that usage of different models can be added.

1 RGU is a quarter of an A100 with 40 GB: 1.6 x FP32 + 1.6 x FP16 + 0.8 x memory, each relative to that GPU.
Sources: the Digital Research Alliance of Canada's table ("Allocations and compute scheduling", May 2026; H100 as Mila
gives it, 12.15); COMPUTED applies the formula to models outside that table (mila-iqia/IGUANE, May 2025). Newer models
have no value here: a site sets its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from deepopsctl.gpus.mig_profiles import MigProfile, compute_slices
from deepopsctl.gpus.models import GpuModel, models_of, profiles_of
from deepopsctl.text.problems import RefusedError

Units = Mapping[str, float]

# by Slurm's type and memory in GB
PUBLISHED: Mapping[tuple[str, int], float] = {
    ("h100", 80): 12.15,
    ("a100", 80): 4.8,
    ("a100", 40): 4.0,
    ("v100", 32): 2.6,
    ("v100", 16): 2.2,
    ("t4", 16): 1.3,
    ("p100", 16): 1.1,
    ("p100", 12): 1.0,
}
COMPUTED: Mapping[tuple[str, int], float] = {
    ("h100", 94): 11.09,
    ("l40s", 48): 10.36,
    ("a6000", 48): 4.93,
    ("rtx8000", 48): 2.97,
    ("v100s", 32): 2.65,
}
_SLICE = re.compile(r"(?P<model>.+)_(?P<profile>[0-9]+g\.[0-9]+gb(?:\.me)?)")


def units_of(gpu_type: str, own: Units) -> float:
    """RGU of one GPU or MIG slice of a gres type in any case; `own` are a site's values by type in lower case.

    Raises RefusedError.
    """
    gpu_type = gpu_type.lower()
    if gpu_type in own:
        return own[gpu_type]
    match = _SLICE.fullmatch(gpu_type)
    if match is None:
        return _of_model(gpu_type, own)
    profile = next((one for one in profiles_of(match["model"]).values() if one.gres == match["profile"]), None)
    if profile is None:
        raise _unknown(gpu_type)
    return _share(profile) * _of_card(match["model"], profile, own)


def units_of_card(gpu_type: str, profile: str, own: Units) -> float:
    """RGU of the whole GPU that has a slice of this MIG profile; of the GPU itself with ''."""
    mig_profile = profiles_of(gpu_type).get(profile)
    return _of_card(gpu_type, mig_profile, own) if mig_profile else units_of(gpu_type, own)


def _share(profile: MigProfile) -> float:
    """The part of the GPU that a slice is charged for: of its compute slices or of its memory, whichever is more."""
    whole = 7 if profile.parts == 8 else profile.parts
    return max(compute_slices(profile.name) / whole, profile.size / profile.parts)


def _of_card(gpu_type: str, profile: MigProfile, own: Units) -> float:
    gpu_type = gpu_type.lower()
    if gpu_type in own:
        return own[gpu_type]
    # the profile's name says which memory variant the GPU is
    return _one([model for model in models_of(gpu_type) if profile.name in model.mig], gpu_type)


def _of_model(gpu_type: str, own: Units) -> float:
    models = models_of(gpu_type)
    if models and models[0].type in own:
        return own[models[0].type]
    return _one(models, gpu_type)


def _one(models: list[GpuModel] | tuple[GpuModel, ...], gpu_type: str) -> float:
    """The value of these models: a published one, else a computed one, where it is the only one."""
    for table in (PUBLISHED, COMPUTED):
        values = {
            model.typed_with_memory: table[key] for model in models if (key := (model.type, model.memory_gb)) in table
        }
        if len(set(values.values())) == 1:
            return next(iter(values.values()))
        if values:
            variants = " and ".join(f"{name} {value:g}" for name, value in values.items())
            raise RefusedError(
                f"{gpu_type} has {variants} RGU", f"write which it is: `billing: {{gpus: {{{gpu_type}: ...}}}}`"
            )
    raise _unknown(gpu_type)


def _unknown(gpu_type: str) -> RefusedError:
    return RefusedError(
        f"no reference units are known for GPUs of type {gpu_type or '(none)'}",
        f"write a value: `billing: {{gpus: {{{gpu_type}: ...}}}}`"
        if gpu_type
        else "give the GPUs a type in cluster.yml",
    )
