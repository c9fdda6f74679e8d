"""Of several controllers, this host's own slurmctld has to answer; the state moves to where they share it."""

from __future__ import annotations

import pytest
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.apply_config import answers_here

ONE = "Slurmctld(primary) at ctl1 is {}\n"
TWO = "Slurmctld(primary) at ctl1 is {}\nSlurmctld(backup) at ctl2 is {}\n"


@pytest.mark.parametrize(
    ("pinged", "host", "expected"),
    [
        (ONE.format("UP"), "other-name", True),
        (ONE.format("DOWN"), "ctl1", False),
        (TWO.format("UP", "DOWN"), "ctl1.example.com", True),
        # the other one is in control, and this one did not start
        (TWO.format("DOWN", "UP"), "ctl1", False),
        (TWO.format("DOWN", "UP"), "ctl2", True),
    ],
)
def test_another_controller_does_not_answer_for_this_one(pinged: str, host: str, expected: bool) -> None:
    assert answers_here(pinged, host) is expected
