"""Why GPUs can't have the MIG layout of cluster.yml, and slice numbers that differ from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import mig as nvidia_mig_driver


def impossible(
    wanted: Sequence[Mapping[str, Any]], gpus: Mapping[int, Mapping[str, Any]]
) -> list[tuple[int, str, str]]:
    """[(GPU, message, hint)] of what no command could do."""
    problems = []
    for request in wanted:
        gpu, minor = gpus.get(request["minor"]), request["minor"]
        # that a whole GPU is missing is reported elsewhere, and no reason to leave the others as they are
        if gpu is None and request["slices"]:
            there = ", ".join(f"/dev/nvidia{number}" for number in sorted(gpus)) or "no GPU"
            problems.append((minor, f"nvidia-smi does not list it, but {there}", "correct gpus: in cluster.yml"))
        elif gpu and request["slices"] and gpu["current"] is None:
            problems.append((minor, f"{gpu['name']} has no MIG", "take mig: out of cluster.yml"))
    return problems


def misnumbered(
    wanted: Sequence[Mapping[str, Any]], gpus: Mapping[int, Mapping[str, Any]]
) -> list[tuple[int, str, str]]:
    """[(GPU, message, hint)] where the driver gave slices other numbers than cluster.yml declares to Slurm."""
    problems = []
    for request in wanted:
        gpu = gpus.get(request["minor"])
        if gpu is None or not request["numbers"] or not nvidia_mig_driver.is_met(request, gpu):
            continue
        there: dict[str, list[int]] = {}
        for profile, number, _ in gpu["slices"]:
            there[profile] = sorted(there.get(profile, []) + [number])
        if any(sorted(numbers) != there[profile] for profile, numbers in request["numbers"].items()):
            numbers_text = json.dumps(there)
            wanted_text = json.dumps(request["numbers"])
            message = f"the driver numbered its slices {numbers_text}, and cluster.yml says {wanted_text}"
            problems.append(
                (
                    request["minor"],
                    message,
                    f"write mig: {numbers_text} for this GPU in cluster.yml, then deploy again",
                )
            )
    return problems


def sentences(problems: Sequence[tuple[int, str, str]]) -> str:
    """`GPU 0: message (hint)`, the hint once where several GPUs share it."""
    shown = []
    for position, (minor, message, hint) in enumerate(problems):
        last = position + 1 == len(problems) or problems[position + 1][2] != hint
        shown.append(f"GPU {minor}: {message}{f' ({hint})' if last else ''}")
    return "; ".join(shown)
