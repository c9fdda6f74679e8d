"""`purge` of an entry: unused files are deleted by age, on one node, after notice to their owners. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepopsctl.model.storage import NETWORKED, Mount, StorageType
from deepopsctl.node_programs.services.scratch_purge.settings import DIRECTORY, MODES, holds_homes, root_problem
from deepopsctl.storage.local import is_directory
from deepopsctl.storage.nfs import split_source
from deepopsctl.storage.types import Fault, SharedOption, Site, refused
from deepopsctl.storage.values import is_below, parse_time
from deepopsctl.text.answers import texts
from deepopsctl.text.header import MANAGED_HEADER_FROM_CLUSTER
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Boolean, Section
from deepopsctl.text.values import suggest

DEFAULT_WARN = "7d"
SHORTEST = 7 * 86400
_DOMAIN = re.compile(r"local|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.[A-Za-z]{2,}")
# file systems without access times (GlusterFS: unless ctime.noatime is off)
_WITHOUT_READS = (StorageType.CEPHFS, StorageType.GLUSTERFS)
PROGRAM = "/usr/local/sbin/deepops-purge"


_SERVICE = (
    MANAGED_HEADER_FROM_CLUSTER
    + """[Unit]
Description=Purge of storage {name} by age
# a timer that was missed starts it at boot, when the clock may not be set yet
Wants=time-sync.target
After=remote-fs.target time-sync.target

[Service]
Type=oneshot
ExecStart={program} {name} --apply
# the users' work comes first
Nice=19
IOSchedulingClass=idle
# an open directory per level of nesting
LimitNOFILE=65536
ProtectSystem=full
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
# another run is under way
SuccessExitStatus=75
# mailers without a daemon may deliver after this program has ended: systemd must not end them with it
KillMode=process
"""
)
_TIMER = (
    MANAGED_HEADER_FROM_CLUSTER
    + """[Unit]
Description=Purge of storage {name} by age, every night

[Timer]
OnCalendar=*-*-* 02:30
RandomizedDelaySec=1h
Persistent=true

[Install]
WantedBy=timers.target
"""
)


class PurgeSection(Section):
    """`purge` of an entry."""

    age: str
    mode: str = "list"
    warn: str = DEFAULT_WARN
    mail: str = ""
    exclude: tuple[str, ...] = ()
    empty_directories: Boolean = False
    ignore_reads: Boolean = False
    node: str = ""


@dataclass(frozen=True, slots=True)
class Purge:
    """One purge: the node that runs it, and its settings."""

    name: str
    node: str
    settings: Mapping[str, object]

    @property
    def unit(self) -> str:
        """Name of its units, without the ending."""
        return f"deepops-purge-{self.name}"


def purge_of(mount: Mount) -> Purge | None:
    """The purge of a checked entry; None without `purge`."""
    part = mount.parts.get("purge")
    if part is None:
        return None
    node = _node(mount)
    patterns = part.get("exclude", ())
    settings = {
        "name": mount.name,
        "root": _root(mount),
        "age": parse_time(str(part["age"])),
        "mode": str(part.get("mode", "list")),
        "warn": _parse_warn(str(part.get("warn", DEFAULT_WARN))),
        "mail": str(part.get("mail", "")),
        "exclude": [*texts(patterns)],
        "empty_directories": bool(part.get("empty_directories")),
        "ignore_reads": bool(part.get("ignore_reads", False)),
        "mounted": node != mount.server,
    }
    return Purge(mount.name, node, settings)


def purges_on(mounts: Iterable[Mount], host: str) -> list[Purge]:
    """The purges that run on a node."""
    return [purge for mount in mounts if (purge := purge_of(mount)) and purge.node == host]


def files(purge: Purge) -> dict[str, str]:
    """Configuration and units, {path: text}."""
    units = "/etc/systemd/system"
    return {
        f"{DIRECTORY}/{purge.name}.json": json.dumps(dict(purge.settings), indent=1, ensure_ascii=False) + "\n",
        f"{units}/{purge.unit}.service": _SERVICE.format(name=purge.name, program=PROGRAM),
        f"{units}/{purge.unit}.timer": _TIMER.format(name=purge.name),
    }


def _check(mount: Mount, _site: Site) -> Iterator[Fault]:
    part = mount.parts["purge"]
    mode, mail = str(part.get("mode", "list")), str(part.get("mail", ""))
    warn = str(part.get("warn", DEFAULT_WARN))
    faults = [*refused("purge.age", parse_time, str(part["age"]))]
    faults += refused("purge.warn", _parse_warn, warn)
    yield from faults
    if not faults and parse_time(str(part["age"])) < SHORTEST:
        yield "purge.age", RefusedError("is too short: people are away for a week", "write 7d or more")
    elif not faults and _parse_warn(warn) > parse_time(str(part["age"])):
        yield "purge.warn", RefusedError("is more than the age", "users are notified before the age is reached")
    if mode not in MODES:
        yield "purge.mode", RefusedError(f"{shorten(mode)!r} is not a valid mode", suggest(mode, MODES))
    if mail and not _DOMAIN.fullmatch(mail):
        yield "purge.mail", RefusedError(f"{shorten(mail)!r} is not a mail domain", "write hpc.example.com, or local")
    yield from _check_exclude(part)
    yield from _check_node(mount, str(part.get("node", "")))
    for path in _trees(mount):
        if problem := root_problem(path):
            yield "purge", RefusedError(f"{path}: {problem}", "a purge is for scratch")
            break
    yield from _check_reads(mount, part)


def _trees(mount: Mount) -> Iterator[str]:
    """All paths of the tree: its mount point, and its path on the server or on the disk."""
    yield mount.path
    path = split_source(mount.source)[1]
    if mount.server or (path and holds_homes(path)):
        yield path
    elif mount.type is StorageType.LOCAL and is_directory(mount.source):
        yield mount.source


def _check_reads(mount: Mount, part: Mapping[str, object]) -> Iterator[Fault]:
    """Without access times, a file that is read every day would be deleted."""
    if part.get("ignore_reads"):
        return
    hint = "write `ignore_reads: true`: age then counts from the last change, and the notice to users says so"
    if mount.type in _WITHOUT_READS:
        yield "purge", RefusedError(f"{mount.type} does not note when a file is read", hint)
    elif "noatime" in mount.options and mount.type is not StorageType.NFS:
        # with NFS the server stores it, whatever the client's mount options
        yield "purge", RefusedError("noatime: it is not noted when a file is read", f"leave noatime out, or {hint}")


def _check_together(mounts: Sequence[Mount]) -> Iterator[tuple[Mount, Fault]]:
    """Directories of the tree that other entries use have to be excluded."""
    for mount in (each for each in mounts if "purge" in each.parts):
        excluded = {pattern.strip("/") for pattern in texts(mount.parts["purge"].get("exclude"))}
        for other in mounts:
            below = _below(mount, other)
            if below and below not in excluded:
                what = f"{below} in it is {other.name}'s, mounted at {other.path}"
                yield mount, ("purge", RefusedError(what, f"exclude: [{below}]"))
            elif below == "" and (problem := root_problem(other.path)):
                what = f"it is {other.name}'s as well, mounted at {other.path}: {problem}"
                yield mount, ("purge", RefusedError(what, "a purge is for scratch"))


def _below(mount: Mount, other: Mount) -> str | None:
    """Path in a mount's tree that another entry uses, '' for all of it; None if it uses none."""
    its_host, path = _served(other)
    for host, root in (_served(mount), ("", mount.path)):
        if other is not mount and root and its_host == host and (path == root or is_below(path, root)):
            return path[len(root) :].strip("/")
    return None


def _served(mount: Mount) -> tuple[str, str]:
    """The server that has it on disk ('' for each node itself), and the path there."""
    if mount.type is StorageType.LOCAL:
        return "", mount.source if is_directory(mount.source) else mount.path
    host, path = split_source(mount.source)
    return mount.server or host.lower(), path


def _parse_warn(text: str) -> int:
    return 0 if text == "0" else parse_time(text)


def _check_exclude(part: Mapping[str, object]) -> Iterator[Fault]:
    for pattern in texts(part.get("exclude")):
        if not pattern.strip("/") or ".." in pattern.split("/"):
            what = f"{shorten(pattern)!r} matches nothing below the root"
            yield "purge.exclude", RefusedError(what, "write a name or a path below the root: '*.keep', def-prof/data")


def _check_node(mount: Mount, node: str) -> Iterator[Fault]:
    if mount.type is StorageType.LOCAL and not mount.settings.get("shared"):
        yield (
            "purge",
            RefusedError("every node has its own here", "a purge is for what nodes share: local: {shared: true}"),
        )
    if node and node not in (*mount.nodes, mount.server):
        yield (
            "purge.node",
            RefusedError(f"{shorten(node)} neither mounts nor serves {mount.name}", "name one that does"),
        )
    if not node and not mount.server and not mount.nodes:
        yield "purge", RefusedError("no node mounts it", "set nodes:")


def _node(mount: Mount) -> str:
    """The server has accurate access times and an unsquashed root; without one, the first node that mounts it."""
    return str(mount.parts["purge"].get("node", "")) or mount.server or mount.nodes[0]


def _root(mount: Mount) -> str:
    at_its_server = mount.server and str(mount.parts["purge"].get("node", "")) in ("", mount.server)
    return split_source(mount.source)[1] if at_its_server else mount.path


OPTION = SharedOption(PurgeSection, _check, frozenset({*NETWORKED, StorageType.LOCAL}), _check_together)
