"""Stage testinfra: the suite for live clusters, on nodes with a kernel of their own."""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import ROOT
from tests.vm.stages.vmcluster import NODE, VmCluster


def suite(cluster: VmCluster) -> subprocess.CompletedProcess[str]:
    """Run the suite as an administrator would."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "tests/testinfra",
        "-vv",
        "--cluster",
        str(cluster.directory),
        "--timeout=0",
    ]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=cluster.patience_s)


def test_the_suite_for_live_clusters_reports_nothing_but_that_the_gpus_are_stand_ins(cluster: VmCluster) -> None:
    done = suite(cluster)

    failed = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert failed == [f"FAILED tests/testinfra/test_nodes.py::test_the_doctor_reports_no_problem_of_it[{NODE}]"], (
        done.stdout
    )
    assert f"assert ['gpus {NODE}: no NVIDIA GPU is on the PCI bus'] == []" in done.stdout.replace(
        "E       Assertion", ""
    )


def test_the_suite_detects_a_service_that_was_stopped(cluster: VmCluster) -> None:
    cluster.root(NODE, "systemctl stop slurmd")

    done = suite(cluster)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "slurmd" in done.stdout
