"""What is mounted on a node, its mount units, and whether a mount may be removed. Reads only."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

UNIT_DIRECTORY = "/etc/systemd/system"
TABLE = "/proc/self/mountinfo"
AUTOFS = "autofs"
# Options that the kernel changes under those who use the mount, by type; '' has those of every type.
LIVE = {
    "": {
        "ro", "rw", "noatime", "atime", "relatime", "norelatime", "strictatime", "nodiratime", "diratime", "nodev",
        "dev", "nosuid", "suid", "noexec", "exec", "nosymfollow", "symfollow",
    },
    "tmpfs": {"size", "nr_inodes"},
    "ext4": {"commit", "discard", "nodiscard", "errors"},
}  # fmt: skip
FLAGS = LIVE[""]
NFS = ("nfs", "nfs4")
# Of these, those that belong to the mount itself: neither server nor file system hears of them.
OF_MOUNT = {"nodev", "dev", "nosuid", "suid", "noexec", "exec", "nosymfollow", "symfollow"}
# What undoes a flag: a remount keeps options that it is not given.
UNDONE = {
    "ro": "rw", "noatime": "relatime", "atime": "relatime", "strictatime": "relatime", "nodiratime": "diratime",
    "nodev": "dev", "nosuid": "suid", "noexec": "exec", "norelatime": "relatime", "nosymfollow": "symfollow",
    "rw": "", "diratime": "", "dev": "", "suid": "", "exec": "", "relatime": "", "symfollow": "",
}  # fmt: skip
MAX_USERS = 5


class Entry(NamedTuple):
    """What is mounted at a path; `root` is the directory of the source that is seen there."""

    path: str
    root: str
    source: str
    fstype: str
    flags: tuple[str, ...] = ()


class Unit(NamedTuple):
    """What a mount unit mounts."""

    what: str
    fstype: str
    options: list[str]


def rows(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The fields of each line before ` - ` and after it; escaped, as the kernel writes blanks and line feeds.

    It does so with no other separator of lines, and a user chooses where something is mounted.
    """
    for line in text.split("\n"):
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if separator and len(fields) >= 5 and len(rest) >= 2:
            yield fields, rest


def parse_table(text: str) -> dict[str, Entry]:
    """{path: Entry} of what is on top of each path; what only waits for its first use is left out."""
    entries = {}
    for fields, rest in rows(text):
        if rest[0] != AUTOFS:
            path = unescape(fields[4])
            flags = tuple(fields[5].split(",")) if len(fields) > 5 else ()
            entries[path] = Entry(path, unescape(fields[3]), unescape(rest[1]), rest[0], flags)
    return entries


def unmanaged_nfs_mounts(text: str, managed_paths: Sequence[str]) -> list[dict[str, str]]:
    """NFS that is mounted neither at these paths nor below them: not managed, as the kernel's table has it.

    Of version 3 the kernel does not say by which address the node speaks.
    """
    result = []
    for fields, rest in rows(text):
        if len(rest) < 3 or rest[0] not in NFS:
            continue
        path, options = unescape(fields[4]), dict(word.partition("=")[::2] for word in rest[2].split(","))
        if not any(path == each or path.startswith(each + "/") for each in managed_paths):
            export = "/" + unescape(rest[1]).partition(":/")[2]
            server, client = options.get("addr", ""), options.get("clientaddr", "")
            result.append({"path": path, "export": export, "server": server, "client": client})
    return result


def unescape(text: str) -> str:
    """A field as it is."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def table() -> str:
    """The kernel's own, as it is now."""
    with open(TABLE, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        return stream.read()


def mounted() -> dict[str, Entry]:
    """What is mounted now."""
    return parse_table(table())


def is_mounted(path: str) -> bool:
    """Whether something is mounted there; what is mounted at its first use is used."""
    with contextlib.suppress(OSError):
        os.statvfs(path)
    return path in mounted()


def parse_unit(text: str) -> Unit:
    """What a managed mount unit mounts; options without those that only say when (older ones had nofail, too)."""
    values = dict(line.partition("=")[::2] for line in text.splitlines() if not line.startswith("#"))
    options = [word for word in values.get("Options", "").split(",") if word and word not in ("_netdev", "nofail")]
    return Unit(values.get("What", "").replace("%%", "%"), values.get("Type", ""), options)


def waits_for(text: str) -> list[str]:
    """What a managed automount unit does, line by line; nothing for no unit."""
    return text.partition("[Automount]")[2].partition("[Install]")[0].split()


def is_live(before: Unit, after: Unit) -> bool:
    """Whether the kernel can go from one unit to the other while the mount is used."""
    if (before.what, before.fstype) != (after.what, after.fstype):
        return False
    allowed = LIVE[""] | LIVE.get(after.fstype, set())
    new = [option.partition("=")[0] for option in after.options if option not in before.options]
    return all(key in allowed for key in new) and all(key in UNDONE for key in _dropped(before, after))


def _dropped(before: Unit, after: Unit) -> list[str]:
    """Options of `before` that `after` does not mention."""
    named = {option.partition("=")[0] for option in after.options}
    return [key for key in (option.partition("=")[0] for option in before.options) if key not in named]


def remount_options(before: Unit, after: Unit) -> str:
    """What `mount -o` takes to go from one to the other."""
    undone = [UNDONE[key] for key in _dropped(before, after) if UNDONE[key]]
    return ",".join(["remount"] + undone + after.options)


def is_of_mount(before: Unit, after: Unit) -> bool:
    """Whether the units differ in flags of the mount only, which every type of file system can change."""
    changed = set(before.options) ^ set(after.options)
    return (before.what, before.fstype) == (after.what, after.fstype) and changed <= OF_MOUNT


def in_force(unit: Unit, entry: Entry) -> Unit:
    """A unit without what its mount lacks: another program mounted it, or gave it other options."""
    lacking = {"nodev", "nosuid", "noexec"} - set(entry.flags)
    return unit._replace(options=[option for option in unit.options if option not in lacking])


def is_on_itself(unit: Unit, path: str) -> bool:
    """Whether a unit mounts a directory on itself, for the options."""
    return (unit.fstype, unit.what) == ("none", path)


def below(path: str, entries: Mapping[str, Entry]) -> list[str]:
    """The paths in a table of mounts that are below a path."""
    return [each for each in entries if each.startswith(path.rstrip("/") + "/")]


def is_same_mount(entry: Entry, unit: Unit) -> bool:
    """Whether a mount that another program made is the one that a unit would make."""
    if unit.fstype == "none":
        return _same_directory(entry.path, unit.what)
    if unit.fstype == "tmpfs":
        return entry.fstype == "tmpfs"
    if unit.what.startswith("/dev/"):
        return os.path.realpath(entry.source) == os.path.realpath(unit.what)
    return entry.source == unit.what


def _same_directory(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def hidden_entries(path: str) -> int:
    """How many entries of a directory a mount would hide."""
    try:
        return len(os.listdir(path))
    except OSError:
        return 0


def conflict_at(path: str) -> str:
    """Why nothing can be mounted there: a file, or a link that leads elsewhere; '' for nothing."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return ""
    if stat.S_ISLNK(mode):
        return f"{path} is a link to {os.readlink(path)}"
    return "" if stat.S_ISDIR(mode) else f"{path} is not a directory"


def users(path: str) -> str:
    """Processes with something open below a path: `bash (4711)`; links are read, the file system itself is not."""
    processes = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        directory = os.path.join("/proc", process)
        if any(target == path or target.startswith(path + "/") for target in _targets(directory)):
            processes.append(f"{_name(directory)} ({process})")
    more = len(processes) - MAX_USERS
    return ", ".join(processes[:MAX_USERS]) + (f" and {more} more" if more > 0 else "")


def _targets(directory: str) -> Iterator[str]:
    links = [os.path.join(directory, name) for name in ("cwd", "root", "exe")]
    with contextlib.suppress(OSError):
        links += [os.path.join(directory, "fd", name) for name in os.listdir(os.path.join(directory, "fd"))]
    for link in links:
        try:
            yield os.readlink(link)
        except OSError:
            continue


def _name(directory: str) -> str:
    try:
        with open(os.path.join(directory, "comm")) as stream:
            return stream.read().strip()
    except OSError:
        return "?"
