"""Which of several controllers answer, and which is in control: there is nothing of it where Slurm has one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Callable

from ..._shared import settings
from ..._shared.prometheus_text import Families
from ..slurm_controllers.cli import CONFIG, in_control


def load(path: str = CONFIG) -> dict[str, Any]:
    """The controllers of a cluster that has several; {} for one. Raises SettingsError for a damaged file."""
    return settings.load(path) if os.path.exists(path) else {}


def add(
    families: Families,
    config: Mapping[str, Any],
    answering: Mapping[str, bool],
    active: Callable[[Mapping[str, Any]], str] = in_control,
) -> None:
    """The metrics of each controller; `place` is 1 for the first."""
    up = families.family("deepops_slurm_controller_up", "Whether the slurmctld of a controller answers.")
    control = families.family("deepops_slurm_in_control", "1 for the controller that is in control of Slurm.")
    host = active(config)
    for place, name in enumerate(config["hosts"], start=1):
        up.set(int(answering.get(name, False)), node=name, place=str(place))
        control.set(int(name == host), node=name, place=str(place))
