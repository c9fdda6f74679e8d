"""What a node is: its distribution, and the cgroup hierarchy that slurmd will meet there."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, List

CGROUP = "/sys/fs/cgroup"
# where Slurm keeps track of jobs, and confines them
V1 = ("cpuset", "devices", "freezer", "memory")
NVIDIA = "/sys/module/nvidia/version"
# What `srun` needs to start the processes of one MPI program: Slurm's plugin, and the library that it loads at run time
# (releases before 23.11 look for libpmix.so, which is in no package but the one for developers).
PMIX = (
    ("/usr/lib/*/slurm-wlm/mpi_pmix.so", "/usr/lib/*/slurm/mpi_pmix.so", "/usr/lib64/slurm/mpi_pmix.so"),
    ("/usr/lib/*/libpmix.so.2", "/usr/lib64/libpmix.so.2"),
)


def os_release() -> Dict[str, str]:
    """Ansible's names for the platform, from /etc/os-release."""
    fields = {}
    with open("/etc/os-release") as stream:
        for line in stream:
            key, _separator, value = line.strip().partition("=")
            fields[key] = value.strip('"')
    like = [*fields.get("ID_LIKE", "").split(), fields.get("ID", "")]
    family = "Debian" if "debian" in like else "RedHat" if "rhel" in like or "fedora" in like else fields.get("ID", "")
    version = fields.get("VERSION_ID", "")
    return {
        "distribution": (fields.get("NAME") or fields.get("ID") or "unknown").split()[0],
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "os_family": family,
        "kernel": os.uname().release,
    }


def versions() -> Dict[str, str]:
    """{os, kernel, driver}; no driver where none is loaded."""
    release = os_release()
    name = "%s %s" % (release["distribution"], release["distribution_version"])
    result = {"os": name.strip(), "kernel": os.uname().release}
    if os.path.exists(NVIDIA):
        with open(NVIDIA) as stream:
            result["driver"] = stream.read().strip()
    return result


def memory_facts() -> Dict[str, int]:
    """The node's memory in MiB."""
    with open("/proc/meminfo") as stream:
        return {"deepops_memory_mb": int(stream.readline().split()[1]) // 1024}


def cgroup_facts(root: str = CGROUP) -> Dict[str, Any]:
    """Which cgroup hierarchy slurmd will meet, whether it may confine jobs in it, and if not, why."""
    unified = os.path.join(root, "cgroup.controllers")
    if os.path.exists(unified):
        version, directories = "v2", [root]
        with open(unified) as stream:
            # a v2 tree alongside a v1 one may exist and offer no controllers
            missing = sorted({"cpuset", "memory"} - set(stream.read().split()))
    else:
        version, directories = "v1", [os.path.join(root, name) for name in V1]
        missing = [name for name in V1 if not os.path.isdir(os.path.join(root, name))]
    if missing:
        fault = "%s has no controller %s" % (root, ", ".join(missing))
    else:
        read_only = [directory for directory in directories if not is_writable(directory)]
        fault = "%s is read-only" % ", ".join(read_only) if read_only else ""
    return {"deepops_cgroup": version, "deepops_cgroup_writable": not fault, "deepops_cgroup_fault": fault}


def pmix_facts() -> Dict[str, bool]:
    """Whether Slurm starts MPI programs by PMIx here."""
    return {"deepops_pmix": all(any(glob.glob(pattern) for pattern in patterns) for patterns in PMIX)}


def pmix_probe() -> List[str]:
    """The same as a command, for a node that has just got its packages: it fails where anything is missing."""
    tests = ("ls -d %s 2>/dev/null | grep -q ." % " ".join(patterns) for patterns in PMIX)
    return ["sh", "-c", " && ".join(tests)]


def is_writable(directory: str) -> bool:
    """True for a directory that root may write to and that is not mounted read-only."""
    return os.access(directory, os.W_OK) and not os.statvfs(directory).f_flag & os.ST_RDONLY
