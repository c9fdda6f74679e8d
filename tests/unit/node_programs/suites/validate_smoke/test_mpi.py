"""The check of MPI programs under a plain `srun`: what the processes print, and where it can't be tried."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs._slurm_jobs import pmix
from deepopsctl.node_programs._slurm_jobs.placement import Placement
from deepopsctl.node_programs.suites.validate_smoke import mpi

LISTED = "MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2\nspecific pmix plugin versions available: pmix_v5\n"
TWO = Placement("gpu", ["gpu01", "gpu02"])


@pytest.mark.parametrize(
    ("output", "status", "measured"),
    [
        ("noise of a profile\nDEEPOPS-MPI 2 2\nDEEPOPS-MPI 2 2\n", "pass", "one program of 2 processes"),
        ("DEEPOPS-MPI 1 1\nDEEPOPS-MPI 1 1\n", "fail", "2 programs of one process"),
        ("DEEPOPS-MPI 2 2\n", "fail", "1 answers"),
        ("DEEPOPS-MPI 2 1\nDEEPOPS-MPI 2 1\n", "fail", "2 answers"),
        ("DEEPOPS-MPI\n", "fail", "0 answers"),
        ("", "fail", "0 answers"),
    ],
)
def test_two_processes_have_to_be_one_program(output: str, status: str, measured: str) -> None:
    check = mpi.evaluate("mpi", "hpc", TWO, output, "")

    assert (check["status"], check["measured"]) == (status, measured)
    if status == "fail":
        assert check["message"] == "srun -n 2 on gpu01 and gpu02, MpiDefault=none"


@pytest.mark.parametrize(
    ("plugins", "version", "reason"),
    [
        (LISTED, "24.11.5", ""),
        (LISTED, "23.11.4", ""),
        (LISTED, "22.05.8", "finds no library"),
        (LISTED.replace("pmix", "pmi1"), "26.05.1", "built without PMIx"),
        ("", "24.11.5", "built without PMIx"),
    ],
)
def test_it_is_tried_where_slurm_has_a_usable_pmix(plugins: str, version: str, reason: str) -> None:
    assert reason in pmix.reason(plugins, version)
    assert bool(pmix.reason(plugins, version)) == bool(reason)
