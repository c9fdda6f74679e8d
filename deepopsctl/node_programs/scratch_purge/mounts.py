"""Mounts: whether a tree may be purged at all, and whether its file system has access times."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Iterable, Iterator, Tuple

from .settings import HOMES, SYSTEM_TREES

# types without access times, whatever the mount options
_WITHOUT_READS = ("ceph", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs")
# nothing is mounted there for good
_TRANSIENT = ("/dev", "/proc", "/run", "/snap", "/sys", "/var/run", "/var/snap")


@dataclass(frozen=True)
class MountPoint:
    """One line of mountinfo; `top` is the directory of the file system that is mounted there."""

    number: int
    device: str
    top: str
    path: str
    type: str
    options: Tuple[str, ...]

    def inside(self, path: str) -> str:
        """The place of a path of this mount within its file system."""
        below = os.path.relpath(path, self.path)
        return os.path.normpath(os.path.join(self.top, below))

    @property
    def notes_reads(self) -> bool:
        """Whether a file that is only read gets a newer time."""
        return "noatime" not in self.options and self.type not in _WITHOUT_READS


def mounted() -> Iterator[MountPoint]:
    """All that this process sees."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            fields = line.split()
            rest = fields[fields.index("-") + 1 :]
            options = (*fields[5].split(","), *(rest[2].split(",") if len(rest) > 2 else ()))
            yield MountPoint(
                int(fields[0]), fields[2], _unescape(fields[3]), _unescape(fields[4]), rest[0], tuple(options)
            )


def _unescape(text: str) -> str:
    for code in ("\\040", "\\011", "\\012", "\\134"):
        text = text.replace(code, chr(int(code[1:], 8)))
    return text


def is_within(path: str, tree: str) -> bool:
    """Whether a path is a tree's root or below it."""
    return path == tree or path.startswith(tree.rstrip("/") + "/")


def what_it_holds(root: str, mount: MountPoint, mounts: Iterable[MountPoint], homes: Iterable[str]) -> str:
    """A system directory or a user's home that is in the tree under another name; '' for none.

    `/home` may be a link into the tree, a bind mount of it, or another mount of the same file system.
    """
    for path in (*HOMES, *SYSTEM_TREES):
        if os.path.lexists(path) and is_within(os.path.realpath(path), root):
            return path
    within = mount.inside(root)
    for other in mounts:
        if other.device == mount.device and is_within(other.top, within) and _is_system(other.path):
            return other.path
    return next((home for home in homes if is_within(os.path.normpath(home), root)), "")


def _is_system(path: str) -> bool:
    trees = set(SYSTEM_TREES) - set(_TRANSIENT)
    return path in HOMES or any(is_within(path, tree) for tree in trees)
