"""What Slurm's packages are able to do, by the files of their plugins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

# {plugin: what is lost without it}. Its file may have a version: `mpi_pmix_v5.so`.
CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "mpi_pmix": "MPI programs start by PMIx (srun --mpi=pmix)",
        "mpi_pmi2": "MPI programs start by PMI-2 (srun --mpi=pmi2)",
        "gpu_nvml": "slurmd detects NVIDIA GPUs (AutoDetect=nvml)",
        "gpu_rsmi": "slurmd detects AMD GPUs (AutoDetect=rsmi)",
        "gpu_oneapi": "slurmd detects Intel GPUs (AutoDetect=oneapi)",
        "pam_slurm_adopt": "logins to nodes are limited to users with a job there",
        "pam_slurm": "logins to nodes are limited to users with a job there",
        "job_submit_lua": "job_submit.lua decides on jobs",
        "cli_filter_lua": "cli_filter.lua decides on commands",
        "auth_jwt": "tokens (AuthAltTypes=auth/jwt)",
    }
)
_VERSION = re.compile(r"(?:_v\d+)?\.so(?:\.\d+)*$")
# of `dpkg-deb --contents`
_FILE = re.compile(r"/(?:slurm|slurm-wlm|security)/([a-z0-9_]+\.so)(?: -> \S+)?$", re.MULTILINE)


def capabilities(files: Iterable[str]) -> frozenset[str]:
    """Which of CAPABILITIES these files bring."""
    return frozenset(_VERSION.sub("", name) for name in files) & CAPABILITIES.keys()


def files_in(contents: str) -> tuple[str, ...]:
    """The plugins in the output of `dpkg-deb --contents`."""
    return tuple(dict.fromkeys(_FILE.findall(contents)))
