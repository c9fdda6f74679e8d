"""Quotas of exports: which limits a file system gets, whether it can have any, and how they are set there."""

from __future__ import annotations

import functools
import json
import os
import pwd
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    files as node_files,
    record as node_record,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.errors import HintedError
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table, quota_kernel

MARKER = "deepopsctl"
TYPES = ("ext4", "xfs")
NO_LIMITS = [0, 0, 0, 0]
# accounts of people, as adduser gives them numbers
FIRST_UID, LAST_UID = 1000, 59999
# what XFS gives users without limits of their own has this number
XFS_DEFAULT = 0

_FSTAB_LINE = re.compile(r"(?P<before>\s*[^#\s]\S*\s+(?P<point>\S+)\s+\S+\s+)(?P<options>\S+)(?P<after>.*)")


class FileSystem(NamedTuple):
    """One of a node's, by where it is mounted."""

    point: str
    device: str
    type: str


def file_system_of(path: str, table: str) -> FileSystem | None:
    """The file system that a directory is on, by the kernel's table of mounts (the text of /proc/self/mountinfo)."""
    real = os.path.realpath(path)
    innermost, shown = None, None
    for fields, rest in mount_table.rows(table):
        point = mount_table.unescape(fields[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # a directory that is mounted on itself, for other options: limits belong to the mount around it
        root, device = mount_table.unescape(fields[3]), fields[2]
        on_itself = inside and innermost and shown == (device, _without_end(root, point, innermost.point))
        # of two mounts on one point the later one is on top
        if inside and not on_itself and (innermost is None or len(point) >= len(innermost.point)):
            innermost = FileSystem(point, mount_table.unescape(rest[1]), rest[0])
            shown = (device, root.rstrip("/"))
    return innermost


def _without_end(root: str, point: str, around: str) -> str | None:
    """The directory that is mounted `around`, where `root` is mounted at `point` as it would be seen without that."""
    end = point[len(around.rstrip("/")) :]
    return root[: -len(end)].rstrip("/") if point != around and root.endswith(end) else None


def check(where: FileSystem, quota_type: str, state: quota_kernel.State) -> bool:
    """Raises HintedError where the file system can't have these quotas; True where they only have to be enforced."""
    if where.type not in TYPES:
        words = f"{where.point} is on {where.device} ({where.type}), which has no quotas that deepopsctl knows"
        raise HintedError(words, "serve it from XFS or ext4, or leave `quota` out")
    if state.counted and state.enforced:
        return False
    if state.counted and where.type == "ext4":
        return True
    raise HintedError(
        f"{where.point} ({where.type} on {where.device}) counts no space by {quota_type}",
        _how_to_enable(where, quota_type),
    )


def _how_to_enable(where: FileSystem, quota_type: str) -> str:
    option = option_of(quota_type)
    if where.type == "xfs":
        first = "XFS applies it when it is mounted again, a remount is not enough"
        steps = (
            f"put {option} into its mount options (/etc/fstab, or options: of its entry) and, with no user on "
            f"it, `umount {where.point}`"
        )
        return f"{first}: {steps} and mount it again; for / it is the kernel's rootflags={option}"
    features = "quota" if quota_type == quota_kernel.USER else "quota,project"
    return (
        f"with no user on it: `umount {where.point}`, `tune2fs -O {features} -Q {option} {where.device}`, "
        f"put {option} into its mount options, and mount it again; "
        "a kernel without quota_v2 can't"
    )


def option_of(quota_type: str) -> str:
    """The mount option by which limits hold from boot on."""
    return "usrquota" if quota_type == quota_kernel.USER else "prjquota"


def fstab_with(text: str, point: str, option: str) -> str | None:
    """/etc/fstab with an option for a mount point; None where it does not stand there, the same where it has it."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        words = _FSTAB_LINE.fullmatch(line)
        if not words or mount_table.unescape(words["point"]) != point:
            continue
        if option not in words["options"].split(","):
            lines[index] = f"{words['before']}{words['options']},{option}{words['after']}"
        return "\n".join(lines)
    return None


def wanted_limits(
    export: Mapping[str, Any],
    fstype: str,
    accounts: Mapping[str, int],
    present: Sequence[int],
    limited: Collection[int],
) -> dict[int, Sequence[int]]:
    """{number: limits} that have to hold; `present` are numbers the file system knows, `limited` those set before.

    `accounts` is {name: uid} of this node. Raises HintedError for a user that it does not know.
    """
    if export["kind"] == quota_kernel.PROJECT:
        limits = {project["id"]: project["limits"] for project in export["projects"]}
        # a former project has no limits
        limits.update({number: NO_LIMITS for number in limited if number not in limits})
        return limits
    named = _named(export["users"], accounts)
    if fstype == "xfs":
        # to have none of his own is to have the default
        limits = dict.fromkeys(limited, NO_LIMITS)
        limits[XFS_DEFAULT] = export["default"]
    else:
        people = [uid for uid in (*accounts.values(), *present) if FIRST_UID <= uid <= LAST_UID]
        limits = dict.fromkeys(limited, NO_LIMITS)
        limits.update(dict.fromkeys(people, export["default"]) if any(export["default"]) else {})
    limits.update(named)
    return limits


def _named(users: Mapping[str, Sequence[int]], accounts: Mapping[str, int]) -> dict[int, Sequence[int]]:
    unknown = sorted(name for name in users if name not in accounts and not name.isdigit())
    if unknown:
        hint = "make the accounts first (or give their numbers), or take them out of cluster.yml"
        raise HintedError(f"no account here: {' '.join(unknown)}", hint)
    return {accounts[name] if name in accounts else int(name): limits for name, limits in users.items()}


def to_set(wanted: Mapping[int, Sequence[int]], read: Callable[[int], Sequence[int]]) -> dict[int, Sequence[int]]:
    """{number: limits} that differ from read(number)."""
    return {number: limits for number, limits in sorted(wanted.items()) if list(read(number)) != list(limits)}


def tables(projects: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """(lines for /etc/projects, lines for /etc/projid): what tools call the numbers by."""
    ordered = sorted(projects, key=lambda project: project["name"])
    directories = [f"{project['id']}:{project['path']}" for project in ordered]
    return directories, [f"{project['name']}:{project['id']}" for project in ordered]


def with_lines(current: bytes | None, lines: Sequence[str]) -> bytes:
    """A table with our lines between markers, all others as they were; without lines the block goes."""
    text = (current or b"").decode("utf-8", "surrogateescape").split("\n")
    begin, end = f"# BEGIN {MARKER}", f"# END {MARKER}"
    if begin in text and end in text[text.index(begin) :]:
        first = text.index(begin)
        text[first : text.index(end, first) + 1] = []
    if lines:
        while text and not text[-1]:
            text.pop()
        text += [begin, *lines, end, ""]
    return "\n".join(text).encode("utf-8", "surrogateescape")


def table_conflicts(projid: bytes | None, projects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names or numbers that the tables use for another project already."""
    lines = with_lines(projid, []).decode("utf-8", "surrogateescape").splitlines()
    others = [line.partition(":")[::2] for line in lines if ":" in line and not line.startswith("#")]
    return sorted(
        f"{name}:{number}"
        for name, number in ((name.strip(), number.strip()) for name, number in others)
        for project in projects
        if (name == project["name"]) != (number == str(project["id"]))
    )


class Host:
    """Paths and kernel interface of this host; a test passes others."""

    def __init__(
        self,
        root: str = "/",
        kernel: Callable[..., quota_kernel.Kernel] = quota_kernel.Kernel,
        table: str | None = None,
    ) -> None:
        self.kernel = kernel
        self.fstab = os.path.join(root, "etc/fstab")
        self.projects = os.path.join(root, "etc/projects")
        self.projid = os.path.join(root, "etc/projid")
        self.limited_path = os.path.join(root, node_record.STATE.lstrip("/"), "owned", "storage.quota-limits.json")
        self.table = mount_table.table() if table is None else table


class Export:
    """One export, its file system and the quotas there."""

    def __init__(self, wanted: Mapping[str, Any], host: Host) -> None:
        self.wanted = wanted
        self.kind = wanted["kind"]
        where = file_system_of(wanted["path"], host.table)
        if where is None:
            raise HintedError(f"{wanted['path']} is on no file system", "see /proc/self/mountinfo on the node")
        self.where = where
        self.kernel = host.kernel(self.where.device, self.where.point, self.kind)
        # another has no device that the kernel could ask
        self.state = self.kernel.state() if self.where.type in TYPES else quota_kernel.OFF
        self.is_lax = check(self.where, self.kind, self.state)

    @property
    def key(self) -> str:
        """How read_limited() and write_limited() name this export: its mount point and kind."""
        return f"{self.where.point} {self.kind}"


def read_limited(host: Host) -> dict[str, list[int]]:
    """{"point kind": numbers} that have limits by an earlier call."""
    try:
        limited = json.loads(node_files.read(host.limited_path) or b"{}")
    except ValueError:
        return {}
    return limited if isinstance(limited, dict) else {}


def write_limited(host: Host, limited: Mapping[str, Sequence[int]]) -> None:
    """Save which ids have limits by this call, for the next one to take back."""
    node_record.write_atomically(host.limited_path, json.dumps(limited, sort_keys=True).encode())


def read_exports(exports: Sequence[Mapping[str, Any]], host: Host) -> list[Export]:
    """All file systems, refused together where one can't have its quotas."""
    exported, problems = [], []
    for wanted in exports:
        try:
            exported.append(Export(wanted, host))
        except HintedError as error:
            problems.append(error)
    if problems:
        raise HintedError("; ".join(map(str, problems)), "; ".join(dict.fromkeys(error.hint for error in problems)))
    return exported


def check_together(exports: Sequence[Export]) -> None:
    """One file system has one set of limits of a type."""
    seen: dict[str, Export] = {}
    for export in exports:
        other = seen.setdefault(export.key, export)
        shared_settings = ("grace",) if export.kind == quota_kernel.PROJECT else ("grace", "default", "users")
        if any(export.wanted[key] != other.wanted[key] for key in shared_settings):
            both = f"{other.wanted['path']} and {export.wanted['path']}"
            raise HintedError(
                f"{both} are on one file system ({export.where.point}) with different limits",
                "let both entries say the same: a user with files there has one limit",
            )


def enforce(export: Export, host: Host, noted: node_changes.Noted) -> None:
    """Let limits hold, now and from boot on."""
    if export.is_lax:
        noted.did("quota", export.where.point, "enforce", detail=export.kind)
        if not noted.dry:
            export.kernel.enforce()
    if export.where.type == "ext4":
        before = node_files.read(host.fstab)
        option = option_of(export.kind)
        after = fstab_with((before or b"").decode("utf-8", "surrogateescape"), export.where.point, option)
        if after is not None:
            mode = os.stat(host.fstab).st_mode & 0o7777
            node_files.ensure(noted, host.fstab, after.encode("utf-8", "surrogateescape"), mode)


def set_grace(export: Export, noted: node_changes.Noted) -> None:
    """Set how long a soft limit may be exceeded, in seconds, for space and for files; only where it differs."""
    seconds = export.wanted["grace"]
    if tuple(export.state.grace) == (seconds, seconds):
        return
    noted.did("quota", export.where.point, "set", detail=f"grace of {seconds // 3600} h")
    if not noted.dry:
        export.kernel.set_grace(seconds)


def set_limits(
    exports: Sequence[Export],
    limited: Collection[int],
    noted: node_changes.Noted,
    remember: Callable[[list[int]], object] = list,
) -> list[int]:
    """All limits of one file system and kind, and which numbers are managed from now on.

    `remember` gets, before any is set, all that may have limits if this is cut off.
    """
    export = exports[0]
    accounts = {account.pw_name: account.pw_uid for account in pwd.getpwall()}
    merged = dict(export.wanted, projects=[each for one in exports for each in one.wanted["projects"]])
    present = export.kernel.numbers() if export.kind == quota_kernel.USER and export.where.type != "xfs" else []
    wanted = wanted_limits(merged, export.where.type, accounts, present, limited)
    names = {uid: name for name, uid in accounts.items()}
    names.update({project["id"]: project["name"] for project in merged["projects"]})
    managed = sorted(number for number, limits in wanted.items() if any(limits))
    remember(sorted({*limited, *managed}))
    for number, limits in to_set(wanted, export.kernel.limits).items():
        is_default = number == XFS_DEFAULT and export.kind == quota_kernel.USER
        who = "default" if is_default else names.get(number, str(number))
        noted.did("quota", export.where.point, "set", detail=f"{export.kind} {who}: {limits_text(limits)}")
        if not noted.dry:
            export.kernel.set_limits(number, limits)
    return managed


def limits_text(limits: Sequence[int]) -> str:
    """Limits in words. `limits` are (soft KiB, hard KiB, soft files, hard files), where 0 is none."""
    soft, hard, files_soft, files = limits
    parts = [f"{name} {kib} KiB" for name, kib in (("soft", soft), ("space", hard)) if kib]
    parts += [f"{name} {count}" for name, count in (("files soft", files_soft), ("files", files)) if count]
    return ", ".join(parts) or "no limit"


def name_projects(exports: Sequence[Export], host: Host, noted: node_changes.Noted) -> list[dict[str, Any]]:
    """Our lines of the two tables."""
    projects = [each for export in exports for each in export.wanted["projects"]]
    projid = node_files.read(host.projid)
    conflicts = table_conflicts(projid, projects)
    if conflicts:
        hint = "choose other names, or say id: for each of them in cluster.yml"
        raise HintedError(f"{host.projid} has {' '.join(conflicts)} that are not managed", hint)
    for path, lines in zip((host.projects, host.projid), tables(projects)):
        before = node_files.read(path)
        after = with_lines(before, lines)
        if after != (before or b""):
            node_files.ensure(noted, path, after)
    return projects


def assign_projects(projects: Sequence[Mapping[str, Any]], noted: node_changes.Noted) -> dict[str, str]:
    """Each directory, with what is in it; returns a sentence for each that can't be, by its path."""
    waiting = {}
    for project in projects:
        if not os.path.isdir(project["path"]):
            why = "does not exist: create it, then deploy again"
            waiting[project["path"]] = f"{project['path']} {why}"
            continue
        if quota_kernel.has_project(project["path"], project["id"]):
            continue
        noted.did("quota", project["path"], "assign", detail=f"project {project['name']}")
        if not noted.dry:
            try:
                quota_kernel.assign_project(project["path"], project["id"])
            except HintedError as error:
                # users make directories: theirs must not keep the others from their limits
                waiting[project["path"]] = f"{project['path']}: {error}; {error.hint}"
    return waiting


def remove_obsolete_limits(
    limited: dict[str, list[int]], known: Container[str], host: Host, noted: node_changes.Noted
) -> None:
    """Remove limits on file systems that are no longer declared."""
    for key in [key for key in limited if key not in known]:
        point, _, quota_type = key.rpartition(" ")
        where = file_system_of(point, host.table)
        kernel = host.kernel(where.device, point, quota_type) if where and where.point == point else None
        if kernel is not None and kernel.state().counted:
            for number in limited[key]:
                if any(kernel.limits(number)):
                    noted.did("quota", point, "set", detail=f"{quota_type} {number}: no limit")
                    if not noted.dry:
                        kernel.set_limits(number, NO_LIMITS)
        del limited[key]


def converge(
    exports: Sequence[Mapping[str, Any]], host: Host, noted: node_changes.Noted
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Everything in its order; returns (managed files, sentences for directories that are not a project yet)."""
    file_systems = read_exports(exports, host)
    check_together(file_systems)
    limited = read_limited(host)
    projects = name_projects(file_systems, host, noted)
    groups: dict[str, list[Export]] = {}
    for export in file_systems:
        groups.setdefault(export.key, []).append(export)

    def remember(key: str, numbers: Sequence[int]) -> None:
        if not noted.dry and numbers != limited.get(key, []):
            write_limited(host, {**limited, key: numbers})

    for key, together in groups.items():
        enforce(together[0], host, noted)
        set_grace(together[0], noted)
        limited[key] = set_limits(together, limited.get(key, []), noted, functools.partial(remember, key))
    waiting = assign_projects(projects, noted)
    remove_obsolete_limits(limited, groups, host, noted)
    if not noted.dry and (limited or os.path.exists(host.limited_path)):
        write_limited(host, limited)
    return ((host.projects, host.projid) if projects else ()), waiting


def differences(wanted: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """{differences, problem}: what would still have to be set for one export, or why it can have no quotas."""
    noted = node_changes.Noted(True)
    try:
        for export in read_exports([wanted], host):
            enforce(export, host, noted)
            set_grace(export, noted)
            set_limits([export], [], noted)
    except (HintedError, OSError) as error:
        return {"differences": [], "problem": str(error)}
    changes = (f"{change['name']}: {change.get('detail') or change['action']}" for change in noted.changes)
    return {"differences": list(changes), "problem": ""}
