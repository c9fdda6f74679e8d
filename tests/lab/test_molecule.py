"""Molecule's scenarios on containers, whole: nodes, converge, idempotence, check mode, verify, and nothing left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepopsctl.lab.manage import status
from deepopsctl.lab.state import LabStore
from tests.lab.harness import PREFIX, lab_down
from tests.support.paths import ROOT

# a whole cluster; the same with monitoring, which has lab tests of its own; single roles in a site's own playbook
SCENARIOS = ("default", "monitored", "roles")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_passes_and_leaves_no_container(tmp_path: Path, scenario: str) -> None:
    prefix = f"{PREFIX}-molecule"
    tools = Path(sys.executable).parent
    places = {"MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path), "DEEPOPSCTL_TEST_LAB_PREFIX": prefix}
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(
            [str(tools / "molecule"), "test", "--scenario-name", scenario],
            cwd=ROOT,
            env={**os.environ, **places, "PATH": path, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1500,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        assert f"{prefix}-{scenario}" not in [lab.name for lab in status(LabStore.default())]
    finally:
        lab_down(f"{prefix}-{scenario}")
