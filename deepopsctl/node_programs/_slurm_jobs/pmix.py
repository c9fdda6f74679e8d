"""Whether this Slurm starts MPI programs: by PMIx (Open MPI), by PMI-2 (MPICH)."""

from __future__ import annotations

import re

from .._shared.slurm_output import Record
from . import slurm

# older plugins load libpmix.so, which is in the package for developers alone
FIRST_RELEASE = (23, 11)
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def missing(config: Record) -> str:
    """Why it can't, by what srun lists; '' where it can."""
    return reason(slurm.ask(["srun", "--mpi=list"]).output, config.get("SLURM_VERSION", ""))


def pmi2_missing() -> str:
    """Why srun has no PMI-2; '' where it has."""
    listed = "pmi2" in slurm.ask(["srun", "--mpi=list"]).output.split()
    return "" if listed else "this Slurm was built without PMI-2: users start programs of MPICH with mpirun"


def reason(plugins: str, version: str) -> str:
    """The same from the output of `srun --mpi=list` and Slurm's release."""
    if "pmix" not in plugins.split():
        return "this Slurm was built without PMIx: users start MPI programs with mpirun, inside their jobs"
    release = _RELEASE.match(version)
    if release and (int(release[1]), int(release[2])) < FIRST_RELEASE:
        return f"the PMIx plugin of Slurm {version} finds no library: users start MPI programs with mpirun"
    return ""
