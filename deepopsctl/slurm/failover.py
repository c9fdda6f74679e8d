"""What several controllers need of Slurm, and what a site can't set then. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

# before it, slurmctld crashes or stalls when control changes a second time, by its release notes
OLDEST = (24, 11, 5)


def refusal(version: str) -> str:
    """Why a Slurm can't have several controllers; '' where it can, or is not installed yet."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None or tuple(int(part) for part in match.groups()) >= OLDEST:
        return ""
    return (
        f"Slurm {match[0]} can't have several controllers: before {'.'.join(map(str, OLDEST))} slurmctld crashes or "
        "stalls when control changes again; leave out `slurm_state`, or upgrade Slurm"
    )


def refused_keys(extra: Mapping[str, object]) -> list[str]:
    """Sentences for keys of `slurm_config` that follow from `slurm_state`."""
    return [
        f"{key} follows from `slurm_state` in cluster.yml: remove it here, or `slurm_state` there"
        for key in sorted(extra)
        if key.lower() == "statesavelocation"
    ]
