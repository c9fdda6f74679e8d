"""Stage testinfra: the suite for live clusters, on nodes with a kernel of their own."""

from __future__ import annotations

import subprocess
import sys

from tests.vm.stages.machines import ROOT
from tests.vm.stages.vmcluster import NODE, VmCluster


def testinfra(cluster: VmCluster) -> subprocess.CompletedProcess[str]:
    """Run the suite as an administrator would."""
    argv = [sys.executable, "-m", "pytest", "tests/testinfra", "--cluster", str(cluster.directory), "--timeout=0"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=cluster.patience_s)


def test_the_suite_for_live_clusters_passes(cluster: VmCluster) -> None:
    done = testinfra(cluster)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_suite_finds_a_service_that_was_stopped(cluster: VmCluster) -> None:
    cluster.root(NODE, "systemctl stop slurmd")

    done = testinfra(cluster)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "slurmd" in done.stdout
