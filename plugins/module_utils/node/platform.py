"""What a node is: its distribution, and the cgroup hierarchy that slurmd will meet there."""

from __future__ import annotations

import glob
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# what cloud-init has of the instance's own user data, which wins over /etc/cloud
USER_DATA = "/var/lib/cloud/instance/cloud-config.txt"
CLOUD_INIT, CLOUD_INIT_OFF = "/usr/bin/cloud-init", "/etc/cloud/cloud-init.disabled"
# since this release Slurm confines jobs by cgroup v2
CONFINES_BY_V2 = (22, 5)
# ... and its slurmd finds a controller by an IPv6 address
FETCHES_BY_IPV6 = (23, 2)
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


def os_release() -> dict[str, str]:
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
        "architecture": os.uname().machine,
    }


def versions() -> dict[str, str]:
    """{os, kernel, driver}; no driver where none is loaded."""
    release = os_release()
    name = f"{release['distribution']} {release['distribution_version']}"
    result = {"os": name.strip(), "kernel": os.uname().release}
    if os.path.exists(NVIDIA):
        with open(NVIDIA) as stream:
            result["driver"] = stream.read().strip()
    return result


def memory_facts() -> dict[str, int]:
    """The node's memory in MiB."""
    with open("/proc/meminfo") as stream:
        return {"deepops_memory_mb": int(stream.readline().split()[1]) // 1024}


def cgroup_facts(root: str = CGROUP) -> dict[str, Any]:
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
        fault = f"{root} has no controller {', '.join(missing)}"
    else:
        read_only = [directory for directory in directories if not is_writable(directory)]
        fault = f"{', '.join(read_only)} is read-only" if read_only else ""
    return {"deepops_cgroup": version, "deepops_cgroup_writable": not fault, "deepops_cgroup_fault": fault}


def pmix_facts() -> dict[str, bool]:
    """Whether Slurm starts MPI programs by PMIx here."""
    return {"deepops_pmix": all(any(glob.glob(pattern) for pattern in patterns) for patterns in PMIX)}


def pmix_probe() -> list[str]:
    """The same as a command, for a node that has just got its packages: it fails where anything is missing."""
    tests = (f"ls -d {' '.join(patterns)} 2>/dev/null | grep -q ." for patterns in PMIX)
    return ["sh", "-c", " && ".join(tests)]


def refusal(requires: Mapping[str, Any]) -> tuple[str, str]:
    """Why nothing can be deployed here, and the way out; ('', '') where it can.

    `python` are the first and last version that the control machine's ansible-core works with; `name` is the node's
    own and `address` the one that cluster.yml has, '' for none; `slurm` are releases of packages, by platform;
    `confines` is whether it confines jobs, `controllers` are the addresses of controllers, and `families` are the
    systems that there are packages for.
    """
    return next(iter(refusals(requires).values()), ("", ""))


def refusals(requires: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """All of these by what they are about: (message, way out) each."""
    facts = dict(os_release(), **cgroup_facts())
    slurm = packaged_slurm(requires.get("slurm") or {}, facts)
    version, core = ".".join(map(str, sys.version_info[:3])), str(requires.get("core", ""))
    answers = {
        "platform": platform_refusal(facts, requires.get("families") or ()),
        "python": python_refusal(version, requires.get("python") or (), core),
        "slurm": slurm_refusal(
            slurm, facts, requires.get("controllers") or (), confines=bool(requires.get("confines", True))
        ),
        "name": name_refusal(str(requires.get("name", "")), str(requires.get("address", ""))),
        "cloud-init": cloud_init_refusal(),
    }
    return {name: answer for name, answer in answers.items() if answer[0]}


def platform_refusal(facts: Mapping[str, Any], families: Sequence[str]) -> tuple[str, str]:
    """Why there are no packages for this system."""
    if not families or facts["os_family"] in families:
        return "", ""
    return f"{facts['distribution']} {facts['distribution_version']} is not supported", (
        f"install a relative of {' or '.join(families)} there"
    )


def python_refusal(version: str, limits: Sequence[str], core: str) -> tuple[str, str]:
    """Why Ansible's modules do not work with this Python."""
    if len(limits) != 2 or numbers(limits[0]) <= numbers(version)[:2] <= numbers(limits[1]):
        return "", ""
    word = "old" if numbers(version) < numbers(limits[0]) else "new"
    message = (
        f"Python {version} is too {word} here: ansible-core {core} on the control machine works with "
        f"{limits[0]} to {limits[1]} on nodes"
    )
    if word == "old":
        return message, "install a newer python3 there, and set ansible_python_interpreter to it"
    hint = (
        "install deepopsctl with a later ansible-core on the control machine (2.20 works with 3.14 and needs Python "
        "3.12 there), or set ansible_python_interpreter to an older Python of the node"
    )
    return message, hint


def packaged_slurm(releases: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The release that this platform packages, of those in a table; '' for another one."""
    names = [f"{facts['distribution']} {facts[key]}" for key in ("distribution_version", "distribution_major_version")]
    return next((str(releases[name]) for name in names if name in releases), "")


def slurm_refusal(
    release: str, facts: Mapping[str, Any], controllers: Sequence[str] = (), *, confines: bool = True
) -> tuple[str, str]:
    """Why the distribution's Slurm could not run jobs here."""
    if not release:
        return "", ""
    has = f"{facts['distribution']} {facts['distribution_version']} packages Slurm {release}, which can't"
    hint = (
        "install a later Slurm (`slurm_install: repository` with packages of your own, docs/operate/packages.md), or a "
        "later distribution; "
    )
    by_ipv6 = [address for address in controllers if ":" in str(address)]
    if confines and facts["deepops_cgroup"] == "v2" and numbers(release) < CONFINES_BY_V2:
        hint += "`slurm_confinement: none` leaves the jobs of all nodes unconfined"
        return f"{has} confine jobs by cgroup v2: every job would fail", hint
    if by_ipv6 and numbers(release) < FETCHES_BY_IPV6:
        hint += "or give the controllers IPv4 addresses in cluster.yml"
        return f"{has} reach a controller by its IPv6 address {by_ipv6[0]}: slurmd would not start", hint
    return "", ""


def name_refusal(name: str, address: str) -> tuple[str, str]:
    """Why other nodes could not reach this one by its name: a loopback address here, and a deploy has no other."""
    addresses = own_addresses(name) if name and not address else []
    if not addresses or not all(is_loopback(each) for each in addresses):
        return "", ""
    return f"its own name {name} is {addresses[0]} here, which no other node reaches", (
        "give it an address in cluster.yml, which a deploy writes first into /etc/hosts, or take its name out of the "
        f"line {addresses[0]} there"
    )


def own_addresses(name: str) -> Sequence[str]:
    """What a name means here; [] for nothing."""
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return []


def is_loopback(address: str) -> bool:
    """Whether an address, IPv4 or IPv6, leads to the node itself."""
    return address.startswith("127.") or address == "::1"


def cloud_init_refusal(user_data: str = USER_DATA) -> tuple[str, str]:
    """Why the next boot would undo /etc/hosts: cloud-init writes it by the instance's user data."""
    if not os.path.exists(CLOUD_INIT) or os.path.exists(CLOUD_INIT_OFF):
        return "", ""
    try:
        with open(user_data, errors="replace") as stream:
            values = re.findall(r"^manage_etc_hosts:\s*[\"']?(\w+)", stream.read(), re.MULTILINE)
    except OSError:
        return "", ""
    if not values or values[-1].lower() not in ("true", "template", "yes", "on"):
        return "", ""
    return f"cloud-init writes /etc/hosts at every boot (manage_etc_hosts: {values[-1]} in its user data)", (
        f"set `manage_etc_hosts: false` in the instance's user data, or switch it off there: touch {CLOUD_INIT_OFF}"
    )


def numbers(version: str) -> tuple[int, ...]:
    """(3, 13, 5) of `3.13.5`."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def is_writable(directory: str) -> bool:
    """True for a directory that root may write to and that is not mounted read-only."""
    return os.access(directory, os.W_OK) and not os.statvfs(directory).f_flag & os.ST_RDONLY
