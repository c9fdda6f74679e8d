"""Metrics of several controllers, from `scontrol ping` and the file with heartbeats."""

from __future__ import annotations

from pathlib import Path

from deepopsctl.node_programs._shared import slurm_output
from deepopsctl.node_programs._shared.prometheus_text import Families
from deepopsctl.node_programs.services.slurm_metrics import control

PING = """\
Slurmctld(primary) at ctl1 is DOWN
Slurmctld(backup) at ctl2 is UP
"""


def test_each_controller_answers_or_not_and_one_is_in_control() -> None:
    families = Families(200)

    control.add(families, {"hosts": ["ctl1", "ctl2"]}, slurm_output.pinged(PING), lambda _config: "ctl2")

    text = families.text()
    for line in (
        'deepops_slurm_controller_up{node="ctl1",place="1"} 0',
        'deepops_slurm_controller_up{node="ctl2",place="2"} 1',
        'deepops_slurm_in_control{node="ctl1",place="1"} 0',
        'deepops_slurm_in_control{node="ctl2",place="2"} 1',
    ):
        assert f"{line}\n" in text


def test_one_controller_has_none_of_them(tmp_path: Path) -> None:
    assert control.load(str(tmp_path / "controllers.json")) == {}
