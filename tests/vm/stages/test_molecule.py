"""Stage molecule: its scenario on virtual machines of its own: converge, idempotence, check mode, verify."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.vm.stages.machines import PATIENCE_S, ROOT
from tests.vm.stages.stand import Stand


def test_molecules_scenario_on_virtual_machines_passes(stand: Stand) -> None:
    # two sets of machines at once are too much for two cores
    stand.rest()
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "DEEPOPSCTL_VM_BOX": stand.box}

    done = subprocess.run(
        [tools / "molecule", "test", "--scenario-name", "vagrant"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )

    assert done.returncode == 0, done.stdout + done.stderr
