"""Slurm's settings where a program of ours goes with every job: monitoring's map of which job has what on a node."""

from __future__ import annotations

from collections.abc import Mapping

from deepopsctl.jobdirectories import PIECES, PROGRAMS, program_refusal

# the map is written before a job and taken away after it
_KEYS = ("Prolog", "Epilog")


def with_job_map(extra: Mapping[str, object]) -> dict[str, object]:
    """A site's `slurm_config` with our programs in it; where it has its own, ours call them."""
    kept = {key: value for key, value in extra.items() if key.lower() not in _lower()}
    return {**kept, **{key: f"{PIECES}/{PROGRAMS[key]}" for key in _KEYS}}


def refused_with_job_map(extra: Mapping[str, object]) -> list[str]:
    """Sentences for programs of a site's that ours can't call."""
    found = (
        program_refusal(key, value, "monitoring") for key, value in sorted(extra.items()) if key.lower() in _lower()
    )
    return [sentence for sentence in found if sentence]


def _lower() -> set[str]:
    return {key.lower() for key in _KEYS}
