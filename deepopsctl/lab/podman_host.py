"""Capabilities of this machine's podman, and the options that nodes need. Decisions are pure."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from deepopsctl.errors import ControlMachineError
from deepopsctl.lab.podman import INSTALL_HINT, PodmanError, podman_json

OLDEST_PODMAN = (4, 0)
# systemd keeps 3 in PID 1 and 1 in logind; without them it fails to start, or worse: misses what happens
INOTIFY_PER_NODE = 4
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")

CAP_SYS_RESOURCE = 24
# Wanted beyond podman's default set because a real machine's root has them: ping, debuggers and `ss -p`, binding
# of tasks to CPUs. Given only where this process has them itself, else the node would not start.
WELCOME_CAPABILITIES = {"NET_RAW": 13, "SYS_PTRACE": 19, "SYS_NICE": 23}
# Raising a hard limit above one's own needs CAP_SYS_RESOURCE. podman asks for a million open files, and lowers
# its own process limit to 32768 before it starts anything: more than that its children can't ask for.
CEILINGS = {"nofile": 1_048_576, "nproc": 32_768}

FUSE = Path("/dev/fuse")
# file systems in user space (GlusterFS, ceph-fuse) are mounted as on a real machine
_FUSE = (f"--device={FUSE}",)


@dataclass(frozen=True, slots=True)
class PodmanHost:
    """The facts of `podman info` that matter here."""

    version: tuple[int, int]
    runtime: str
    cgroups: str
    rootless: bool


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """Hard limits of this process (-1: unlimited), its capabilities as a bit mask, and whether it has FUSE."""

    nofile: int
    nproc: int
    capabilities: int
    fuse: bool = False

    def may(self, capability: int) -> bool:
        """Whether this process has a capability, by number."""
        return bool(self.capabilities >> capability & 1)


@dataclass(frozen=True, slots=True)
class Engine:
    """How nodes are run here: arguments before and after `run`."""

    global_options: tuple[str, ...]
    run_options: tuple[str, ...]


def parse_info(info: Mapping[str, object]) -> PodmanHost:
    """Read `podman info --format json`."""
    try:
        host = cast("Mapping[str, object]", info["host"])
        security = cast("Mapping[str, object]", host["security"])
        runtime = cast("Mapping[str, object]", host["ociRuntime"])
        version = cast("Mapping[str, object]", info["version"])
        major, minor = str(version["Version"]).split(".")[:2]
        return PodmanHost(
            version=(int(major), int(minor)),
            runtime=str(runtime["name"]),
            cgroups=str(host["cgroupVersion"]),
            rootless=bool(security["rootless"]),
        )
    except (KeyError, TypeError, ValueError) as err:
        raise PodmanError(f"`podman info` lacks {err}", "deepopsctl lab knows podman 4 and 5") from err


def decide(host: PodmanHost, own: OwnProcess, *, runc_installed: bool) -> Engine:
    """The podman options for these facts; raises if a lab cannot run here."""
    if host.version < OLDEST_PODMAN:
        raise ControlMachineError(
            f"podman {host.version[0]}.{host.version[1]} is too old for the lab",
            f"install podman {OLDEST_PODMAN[0]}.{OLDEST_PODMAN[1]} or newer",
        )
    if host.rootless:
        raise ControlMachineError(
            "the lab needs podman as root: this machine cannot reach rootless containers by their addresses, "
            "and only root can make the simulated GPUs",
            "run it as root, for example `sudo deepopsctl lab up`",
        )
    return Engine(
        _global_options(host, runc_installed=runc_installed),
        (*_cgroup_options(host), *_capabilities(own), *_limits(own), *(_FUSE if own.fuse else ())),
    )


def detect() -> Engine:
    """The podman options for this machine."""
    info = cast("Mapping[str, object]", podman_json("info", "--format", "json"))
    return decide(parse_info(info), _own_process(), runc_installed=bool(shutil.which("runc")))


def check_room(nodes: int, inotify_instances: int) -> None:
    """Refuse more nodes (of all labs together) than the kernel's inotify limit for root allows."""
    room = inotify_instances // INOTIFY_PER_NODE
    if nodes <= room:
        return
    raise ControlMachineError(
        f"{nodes} nodes (of all labs) would run here, but fs.inotify.max_user_instances={inotify_instances} "
        f"is enough for {room}",
        f"`sysctl -w fs.inotify.max_user_instances={max(1024, nodes * INOTIFY_PER_NODE * 2)}` until the next boot, "
        "or end another lab (`deepopsctl lab status`)",
    )


def inotify_instances() -> int:
    """How many inotify instances all root processes of this machine may have together."""
    return int(INOTIFY_LIMIT.read_text(encoding="ascii"))


def _global_options(host: PodmanHost, *, runc_installed: bool) -> tuple[str, ...]:
    if host.cgroups == "v2" or host.runtime == "runc":
        return ()
    # crun refuses the hybrid layout (v1 controllers with an empty v2 tree beside them)
    if runc_installed:
        return ("--runtime=runc",)
    raise ControlMachineError(f"{host.runtime} cannot run systemd nodes on cgroup v1; runc can", INSTALL_HINT)


def _cgroup_options(host: PodmanHost) -> tuple[str, ...]:
    """Options for a cgroup tree in the node that systemd and slurmd may write to."""
    # NET_ADMIN: systemd sets up the loopback of a unit with a network of its own (PrivateNetwork=). With cgroup v2 the
    # kernel wants it for the device programs (BPF_PROG_TYPE_CGROUP_DEVICE) by which slurmd confines GPUs, too
    options = ("--cap-add=SYS_ADMIN", "--cap-add=NET_ADMIN", "--security-opt=unmask=/sys/fs/cgroup")
    # the tree is delegated and writable already
    return (*options, "--cgroupns=private") if host.cgroups == "v2" else options


def _capabilities(own: OwnProcess) -> tuple[str, ...]:
    return tuple(f"--cap-add={name}" for name, number in WELCOME_CAPABILITIES.items() if own.may(number))


def _limits(own: OwnProcess) -> tuple[str, ...]:
    if own.may(CAP_SYS_RESOURCE):
        return ()
    options: list[str] = []
    for name, limit in (("nofile", own.nofile), ("nproc", own.nproc)):
        allowed = CEILINGS[name] if limit == resource.RLIM_INFINITY else min(limit, CEILINGS[name])
        options.append(f"--ulimit={name}={allowed}:{allowed}")
    return tuple(options)


def _own_process() -> OwnProcess:
    return OwnProcess(
        nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        nproc=resource.getrlimit(resource.RLIMIT_NPROC)[1],
        capabilities=parse_capabilities(Path("/proc/self/status").read_text(encoding="ascii")),
        fuse=FUSE.exists(),
    )


def parse_capabilities(process_status: str) -> int:
    """The effective capabilities in a /proc/PID/status."""
    bits = next(line.split()[1] for line in process_status.splitlines() if line.startswith("CapEff:"))
    return int(bits, 16)
