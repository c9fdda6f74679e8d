"""Mounts: whether a tree may be purged at all, and whether its file system has access times."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..._shared.mount_table import Mounted
from .settings import HOMES, SYSTEM_TREES

# types without access times, whatever the mount options
_WITHOUT_READS = ("ceph", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs")
# nothing is mounted there for good
_TRANSIENT = ("/dev", "/proc", "/run", "/snap", "/sys", "/var/run", "/var/snap")


def notes_reads(mount: Mounted) -> bool:
    """Whether a file that is only read gets a newer time."""
    return "noatime" not in mount.options and mount.type not in _WITHOUT_READS


def is_within(path: str, tree: str) -> bool:
    """Whether a path is a tree's root or below it."""
    return path == tree or path.startswith(tree.rstrip("/") + "/")


def what_it_holds(root: str, mount: Mounted, mounts: Iterable[Mounted], homes: Iterable[str]) -> str:
    """A system directory or a user's home that is in the tree under another name; '' for none.

    `/home` may be a link into the tree, a bind mount of it, or another mount of the same file system.
    """
    for path in (*HOMES, *SYSTEM_TREES):
        if os.path.lexists(path) and is_within(os.path.realpath(path), root):
            return path
    within = os.path.normpath(os.path.join(mount.root, os.path.relpath(root, mount.path)))
    for other in mounts:
        if other.device == mount.device and is_within(other.root, within) and _is_system(other.path):
            return other.path
    return next((home for home in homes if is_within(os.path.normpath(home), root)), "")


def _is_system(path: str) -> bool:
    trees = set(SYSTEM_TREES) - set(_TRANSIENT)
    return path in HOMES or any(is_within(path, tree) for tree in trees)
