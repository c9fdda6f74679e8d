"""All packages of a node: what an upgrade changes, what stays as it is, and why the node has to reboot afterwards."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    files as node_files,
    packages as node_packages,
    record as node_record,
)

# apt reads it in place of /etc/apt/preferences, during one call
PREFERENCES = "/run/deepopsctl-preferences"
SITE_PREFERENCES = "/etc/apt/preferences"
# a package asks for a reboot (Ubuntu, and Debian with unattended-upgrades)
REQUIRED = "/run/reboot-required"
# a new version of a configuration file that a user has edited
LEFT_BEHIND = (".dpkg-dist", ".ucf-dist")
# `Inst libc6 [2.41-12] (2.41-12+deb13u1 Debian:13.3/stable [amd64])`; a new package has no version before
_INSTALLED = re.compile(r"^Inst (\S+)(?: \[([^\]\s]+)\])? \((\S+)", re.MULTILINE)
_KEPT_BACK = re.compile(r"^The following packages have been kept back:\n((?: .*\n)+)", re.MULTILINE)
_KERNEL_IMAGE = re.compile(r"linux-image-(\d.*)")
_LIBRARY = re.compile(r"\s(/(?:usr/)?lib(?:32|64)?/\S*\.so\S*) \(deleted\)$", re.MULTILINE)
# a process of the system, and no user's session
_SYSTEM = re.compile(r"/(init\.scope|system\.slice/([^/\n]+))", re.MULTILINE)


def pins(leave: Sequence[str], own: str) -> str:
    """apt's preferences: these packages (names or patterns) stay as they are, then the site's own."""
    # the first entry that matches a version counts
    entry = f"Package: {' '.join(leave)}\nPin: release *\nPin-Priority: -1\n" if leave else ""
    return entry + ("\n" if entry and own else "") + own


def options(leave: Sequence[str]) -> list[str]:
    """What makes apt leave these packages alone."""
    text = pins(leave, node_files.text(SITE_PREFERENCES))
    node_record.write_atomically(PREFERENCES, text.encode(), 0o644)
    return ["-o", f"Dir::Etc::preferences={PREFERENCES}"]


def upgrades_in(simulated: str) -> dict[str, list[str]]:
    """{package: [version now, later one]}; '' is the version of one that is not there yet."""
    return {name: [before, after] for name, before, after in _INSTALLED.findall(simulated)}


def kept_back_in(simulated: str) -> list[str]:
    """The packages that apt could upgrade only if it removed another one, and those that are held."""
    listed = _KEPT_BACK.search(simulated)
    return sorted(listed.group(1).split()) if listed else []


def waiting(names: Iterable[str]) -> dict[str, list[str]]:
    """The same as upgrades_in, of installed packages (names or patterns) whose later version stays away."""
    there = node_packages.installed(sorted(names))
    offered = node_packages.candidates(sorted(there)) if there else {}
    return {
        name: [there[name], offered[name]] for name in sorted(there) if offered.get(name, there[name]) != there[name]
    }


def new_kernel(upgrades: Mapping[str, Sequence[str]]) -> str:
    """The newest kernel among them, '' without one."""
    releases = [match.group(1) for match in map(_KERNEL_IMAGE.fullmatch, upgrades) if match]
    return newest([release for release in releases if not release.endswith(("-dbg", "-unsigned"))])


def newest(releases: Sequence[str]) -> str:
    """The newest of kernel releases, as boot loaders sort them; '' of none."""
    return max(releases, key=_numbers, default="")


def _numbers(release: str) -> list[tuple[int, int, str]]:
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.findall(r"\d+|[^\d.]+", release)]


def boot_time() -> float:
    """When this system started (seconds since the epoch); in a container its own first process."""
    with open("/proc/1/stat") as stream:
        ticks = int(stream.read().rpartition(")")[2].split()[19])
    with open("/proc/stat") as stream:
        began = next(int(line.split()[1]) for line in stream if line.startswith("btime "))
    return began + ticks / os.sysconf("SC_CLK_TCK")


def kernel_since(began: float, running: str, root: str = "/") -> str:
    """A kernel that is newer than the running one, and was installed since then; '' without one.

    An older one was there at the boot, and the boot loader chose another: that would not change.
    """
    there = [
        os.path.basename(path)[len("vmlinuz-") :]
        for path in glob.glob(os.path.join(root, "boot/vmlinuz-*"))
        if os.stat(path).st_ctime > began
    ]
    later = newest(there)
    return later if later and newest([later, running]) != running else ""


def installed_kernel(root: str = "/") -> str:
    """The newest kernel in /boot; '' where there is none, as in a container."""
    return newest(
        [os.path.basename(path)[len("vmlinuz-") :] for path in glob.glob(os.path.join(root, "boot/vmlinuz-*"))]
    )


def replaced_libraries(root: str = "/proc") -> dict[str, str]:
    """{unit: library} of the system's services that use a library whose file was replaced since they started."""
    users: dict[str, str] = {}
    for directory in glob.glob(os.path.join(root, "[0-9]*")):
        mapped = _LIBRARY.search(_read(os.path.join(directory, "maps")))
        unit = _SYSTEM.search(_read(os.path.join(directory, "cgroup"))) if mapped else None
        if mapped and unit:
            users.setdefault(unit.group(2) or unit.group(1), mapped.group(1))
    return users


def _read(path: str) -> str:
    # a process may end meanwhile
    try:
        with open(path, errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def why_reboot() -> str:
    """Why this node has to reboot, '' where it has not."""
    running = os.uname().release
    later = kernel_since(boot_time(), running)
    if later:
        return f"kernel {later} is installed, {running} runs"
    if os.path.exists(REQUIRED):
        names = node_files.text(REQUIRED + ".pkgs").split()
        return f"requested by {', '.join(sorted(set(names))[:3]) or 'a package'}"
    users = replaced_libraries()
    if users:
        unit = min(users)
        more = f" and {len(users) - 1} more" if len(users) > 1 else ""
        return f"{unit}{more} uses a library that was replaced: {os.path.basename(users[unit])}"
    return ""


def left_behind(since: float, root: str = "/etc") -> list[str]:
    """New versions of configuration files that were put next to edited ones since then."""
    paths = (
        os.path.join(directory, name)
        for directory, _directories, names in os.walk(root)
        for name in names
        if name.endswith(LEFT_BEHIND)
    )
    return sorted(path for path in paths if os.lstat(path).st_ctime >= since)


def restart_pending() -> list[str]:
    """Restart daemons whose program was replaced; their units."""
    units = [f"{name}.service" for name in node_packages.DAEMONS]
    waiting_units = [unit for unit in units if node_record.is_pending(unit)]
    for unit in waiting_units:
        node_command.require(["systemctl", "restart", unit])
        node_record.clear_pending(unit)
    return waiting_units
