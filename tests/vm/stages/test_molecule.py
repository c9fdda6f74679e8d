"""Stage molecule: its scenario on virtual machines of its own: converge, idempotence, check mode, verify."""

from __future__ import annotations

from tests.vm.stages import scenario
from tests.vm.stages.stand import Stand


def test_molecules_scenario_on_virtual_machines_passes(stand: Stand) -> None:
    # two sets of machines at once are too much for two cores
    stand.rest()

    code, output = scenario.run(stand.os, stand.box)

    assert code == 0, output
