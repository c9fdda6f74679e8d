"""What a node is: its distribution, and the cgroup hierarchy that slurmd will meet there."""

from __future__ import annotations

import os

CGROUP = "/sys/fs/cgroup"
NVIDIA = "/sys/module/nvidia/version"


def os_release():
    """Ansible's names for the platform, from /etc/os-release."""
    found = {}
    with open("/etc/os-release") as stream:
        for line in stream:
            key, _separator, value = line.strip().partition("=")
            found[key] = value.strip('"')
    like = found.get("ID_LIKE", "").split() + [found.get("ID", "")]
    family = "Debian" if "debian" in like else "RedHat" if "rhel" in like or "fedora" in like else found.get("ID", "")
    version = found.get("VERSION_ID", "")
    return {
        "distribution": (found.get("NAME") or found.get("ID") or "unknown").split()[0],
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "os_family": family,
        "kernel": os.uname().release,
    }


def versions():
    """{os, kernel, driver}; no driver where none is loaded."""
    release = os_release()
    name = "%s %s" % (release["distribution"], release["distribution_version"])
    found = {"os": name.strip(), "kernel": os.uname().release}
    if os.path.exists(NVIDIA):
        with open(NVIDIA) as stream:
            found["driver"] = stream.read().strip()
    return found


def memory_facts():
    """The machine's memory in MiB."""
    with open("/proc/meminfo") as stream:
        return {"deepops_memory_mb": int(stream.readline().split()[1]) // 1024}


def cgroup_facts():
    """Which cgroup hierarchy slurmd will meet, and whether it may confine jobs in it."""
    unified = os.path.join(CGROUP, "cgroup.controllers")
    if os.path.exists(unified):
        with open(unified) as stream:
            # a v2 tree beside a v1 one can be there and have nothing to give
            usable = {"cpuset", "memory"} <= set(stream.read().split())
        return {"deepops_cgroup": "v2", "deepops_cgroup_writable": usable and is_writable(CGROUP)}
    return {"deepops_cgroup": "v1", "deepops_cgroup_writable": is_writable(os.path.join(CGROUP, "devices"))}


def is_writable(folder):
    """True for a folder that root may write to and that is not mounted read-only."""
    return os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_RDONLY
