"""What the kernel says is mounted, against what was declared. Pure functions over the text of /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..._shared.mount_table import Mounted

# how a type is called by the kernel, where that is another word than in a unit file
_KERNELS = {
    "nfs": ("nfs", "nfs4"),
    "glusterfs": ("fuse.glusterfs",),
    "ceph": ("ceph", "fuse.ceph", "fuse.ceph-fuse"),
    "fuse.ceph": ("fuse.ceph", "fuse.ceph-fuse"),
}
# a mount of these says nothing of its kind, or of its source
ANY_TYPE = ("", "none", "auto")
NO_SOURCE = ("tmpfs", "fuse.ceph", "fuse.ceph-fuse")
# what the kernel always shows where it is in force; what it shows instead of an option that is the rule
_FLAGS = frozenset(
    ["ro", "nosuid", "nodev", "noexec", "noatime", "nodiratime", "nosymfollow", "sync", "dirsync", "lazytime"]
)
_BY_TYPE = {
    "nfs": frozenset(["soft", "softerr", "hard", "noac", "nosharecache", "fsc"]),
    "lustre": frozenset(["flock", "localflock", "user_xattr", "nouser_xattr"]),
    "ceph": frozenset(["noasyncreaddir", "dirstat", "nodirstat", "rbytes", "norbytes"]),
}
_OPPOSITE = {"rw": "ro", "suid": "nosuid", "dev": "nodev", "exec": "noexec", "atime": "noatime", "async": "sync"}
# options with a value that NFS shows whenever they are in force
_SHOWN_VALUES = {"nfs": frozenset(("vers", "rsize", "wsize", "nconnect", "sec", "timeo", "retrans", "proto"))}
_SAME_KEY = {"nfsvers": "vers"}
# what the client caches by default (nfs(5)): seconds
ACDIRMAX = 60.0


class Difference(NamedTuple):
    """What is, what should be, and a sentence."""

    measured: str
    expected: str
    message: str


def below(mounted: Sequence[Mounted], path: str) -> str:
    """The mount point that a directory belongs to while nothing is mounted on it."""
    holders = [entry.path for entry in mounted if path == entry.path or path.startswith(entry.path.rstrip("/") + "/")]
    return max((holder for holder in holders if holder != path), key=len, default="/")


def wrong_mount(mount: Mounted, fstype: str, source: str) -> Difference | None:
    """The right type from the right place? The kernel's table has no directory's own name: see `same_directory`."""
    if fstype not in ANY_TYPE and mount.type not in _KERNELS.get(fstype, (fstype,)):
        return Difference(mount.type, fstype, f"it is a file system of type {mount.type}, from {mount.source}")
    if fstype != "none" and mount.type not in NO_SOURCE and not _same(mount.source, source):
        return Difference(mount.source, source, f"it comes from {mount.source}")
    return None


def missing_options(mount: Mounted, asked: Sequence[str]) -> list[Difference]:
    """Asked options that the kernel shows otherwise; those that it never shows are not compared."""
    shown = {key: value for key, _equals, value in (option.partition("=") for option in mount.options)}
    type_name = "nfs" if mount.type in _KERNELS["nfs"] else mount.type
    wrong = []
    for option in _expanded_options(asked):
        difference = _option_difference(option, shown, type_name)
        wrong += [difference] if difference else []
    return wrong


def _option_difference(option: str, shown: Mapping[str, str], type_name: str) -> Difference | None:
    key, equals, value = option.partition("=")
    key = _SAME_KEY.get(key, key)
    if not equals:
        other = _OPPOSITE.get(key, "")
        if other in shown:
            return Difference(other, option, f"{option} was asked for, {other} is in force")
        comparable = key in _FLAGS or key in _BY_TYPE.get(type_name, ())
        return (
            Difference("not " + key, key, f"{key} was asked for and is not in force")
            if (comparable and key not in shown)
            else None
        )
    if key not in shown:
        certain = key in _SHOWN_VALUES.get(type_name, ()) and not (key == "nconnect" and value == "1")
        text = f"{option} was asked for and is not in force"
        if key == "nconnect":
            text += ": the client shares an earlier connection to that server"
        return Difference("none", option, text) if certain else None
    if _value(key, shown[key]) == _value(key, value) or (key == "vers" and shown[key].startswith(value + ".")):
        return None
    # of a part of the memory the kernel shows how much that was
    if key == "size" and value.endswith("%"):
        return None
    now = f"{key}={shown[key]}"
    return Difference(now, option, f"{option} was asked for, {now} is in force")


def name_bound(mount: Mounted | None) -> float:
    """How long another node may continue not seeing a new name, by the promise of this mount (seconds)."""
    if mount is None or mount.type not in _KERNELS["nfs"]:
        return 0.0
    shown = dict(option.partition("=")[::2] for option in mount.options)
    if "noac" in shown:
        return 0.0
    return float(shown["acdirmax"]) if shown.get("acdirmax", "").isdigit() else ACDIRMAX


def data_bound(mount: Mounted | None) -> float:
    """The same for a file that is opened again after its writer closed it: nothing, but with NFS's `nocto`."""
    if mount is None or "nocto" not in mount.options:
        return 0.0
    shown = dict(option.partition("=")[::2] for option in mount.options)
    return float(shown["acregmax"]) if shown.get("acregmax", "").isdigit() else 60.0


def same_directory(source: str, path: str) -> bool:
    """Whether a directory is what one sees at a path: touches both."""
    return os.path.samefile(source, path)


def _expanded_options(asked: Sequence[str]) -> list[str]:
    """Without what only mount(8) and systemd read, and `actimeo` as the four that it stands for."""
    options: list[str] = []
    for option in asked:
        key, _equals, value = option.partition("=")
        if key == "actimeo":
            options += [f"{name}={value}" for name in ("acregmin", "acregmax", "acdirmin", "acdirmax")]
        elif not key.startswith(("x-", "_", "comment", "no-fail", "nofail", "defaults")):
            options.append(option)
    return options


_SIZE = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)


def _value(key: str, text: str) -> object:
    """A value as one that can be compared: sizes in bytes, numbers whole, modes without their first zeros."""
    if key == "mode":
        return text.lstrip("0")
    size = _SIZE.fullmatch(text)
    if key in ("size", "nr_inodes", "rsize", "wsize") and size:
        return int(size[1]) * 1024 ** " kmgt".index(size[2].lower() or " ")
    return text


def _same(shown: str, declared: str) -> bool:
    if declared.startswith("/") or shown.startswith("/dev/"):
        return os.path.realpath(shown) == os.path.realpath(declared)
    return _normalized(shown) == _normalized(declared)


def _normalized(source: str) -> str:
    return source.rstrip("/").replace(":/", ":").replace("[", "").replace("]", "")
