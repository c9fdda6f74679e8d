"""Stage molecule: its scenario on virtual machines of its own: converge, idempotence, check mode, verify."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vm.stages.scenario import Scenario
from tests.vm.stages.stand import Stand


@pytest.fixture
def scenario(stand: Stand) -> Iterator[Scenario]:
    """Molecule's scenario, with the cores for itself: two sets of machines at once are too much for two of them."""
    stand.rest()
    found = Scenario(stand.box)
    yield found
    found.stop()


def test_molecules_scenario_on_virtual_machines_passes(scenario: Scenario) -> None:
    code, said = scenario.run()

    assert code == 0, said
