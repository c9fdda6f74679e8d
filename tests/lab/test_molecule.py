"""Molecule's default scenario, whole: machines, converge, idempotence, check mode, verify, and nothing left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepopsctl.lab.labs import status
from deepopsctl.lab.state import LabStore
from tests.lab.harness import PREFIX, lab_down
from tests.localansible import ROOT

SCENARIO = "default"


@pytest.mark.timeout(1800)
def test_the_default_scenario_passes_and_leaves_no_machine(tmp_path: Path) -> None:
    prefix = f"{PREFIX}-molecule"
    tools = Path(sys.executable).parent
    places = {"MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path), "DEEPOPSCTL_TEST_LAB_PREFIX": prefix}
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(
            [str(tools / "molecule"), "test", "--scenario-name", SCENARIO],
            cwd=ROOT,
            env={**os.environ, **places, "PATH": path, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1500,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        assert f"{prefix}-{SCENARIO}" not in [lab.name for lab in status(LabStore.default())]
    finally:
        lab_down(f"{prefix}-{SCENARIO}")
