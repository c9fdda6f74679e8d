"""podman: the one place that runs it; its capabilities on this machine, and the options that nodes need."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from deepopsctl.errors import ControlMachineError, DeepOpsError

PACKAGES = "podman runc netavark aardvark-dns iptables nftables mmdebstrap"
INSTALL_HINT = f"on Debian: apt-get install --no-install-recommends {PACKAGES}"

# Said by podman 4 when the unused CNI plugins are absent, and for every device file that no driver serves.
HARMLESS = ("Error validating CNI config file", "Could not locate device")

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


class PodmanError(DeepOpsError):
    """podman failed; the message has the end of its output."""


def podman(*arguments: str, stdin: str = "", timeout_s: float = 120) -> str:
    """Run podman and return its stdout."""
    finished = _run(arguments, stdin, timeout_s)
    if finished.returncode != 0:
        words = last_words(finished.stderr or finished.stdout) or f"exit code {finished.returncode}"
        raise PodmanError(f"podman {arguments[0]} failed: {words}")
    return finished.stdout


def podman_output(*arguments: str, stdin: str = "", timeout_s: float = 120) -> str:
    """Stdout and stderr of a podman command that may fail, for diagnosis."""
    finished = _run(arguments, stdin, timeout_s)
    return finished.stdout + finished.stderr


def podman_succeeds(*arguments: str, timeout_s: float = 120) -> bool:
    """Whether podman ends with 0: for its `exists` questions and for best-effort removal."""
    return _run(arguments, "", timeout_s).returncode == 0


def podman_json(*arguments: str) -> object:
    """Run podman and parse the JSON it prints; nothing printed means an empty list."""
    text = podman(*arguments)
    try:
        return json.loads(text) if text.strip() else []
    except json.JSONDecodeError as err:
        raise PodmanError(f"podman {arguments[0]} printed no JSON: {text.strip()[:200]}") from err


def last_words(text: str, lines: int = 3) -> str:
    """The last meaningful lines of a tool's output, on one line; '' without output."""
    telling = [
        line.strip() for line in text.splitlines() if line.strip() and not any(word in line for word in HARMLESS)
    ]
    return " / ".join(telling[-lines:])


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


def parse_capabilities(process_status: str) -> int:
    """The effective capabilities in a /proc/PID/status."""
    bits = next(line.split()[1] for line in process_status.splitlines() if line.startswith("CapEff:"))
    return int(bits, 16)


def _run(arguments: tuple[str, ...], stdin: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        # An own session: Ctrl-C must not kill podman over a half-made container; `up` removes it in order.
        return subprocess.run(
            ["podman", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            start_new_session=True,
            # podman 5 warns of cgroup v1 with every command, in the midst of what others print
            env={**os.environ, "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"},
        )
    except FileNotFoundError as err:
        raise ControlMachineError("podman is not installed on this machine", INSTALL_HINT) from err
    except subprocess.TimeoutExpired as err:
        raise PodmanError(
            f"podman {arguments[0]} did not end within {timeout_s:.0f} s",
            "look for a stuck container with `podman ps -a`",
        ) from err


def _global_options(host: PodmanHost, *, runc_installed: bool) -> tuple[str, ...]:
    if host.cgroups == "v2" or host.runtime == "runc":
        return ()
    # crun refuses the hybrid layout (v1 controllers with an empty v2 tree next to them)
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
