"""Storage local to each node: `tmpfs` (in memory) and `local` (a disk or another directory)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deepopsctl.model.storage import Mount, Needs, Platform
from deepopsctl.storage.types import Fault, Site, TypeHandler
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import Boolean, Section

_SIZE = re.compile(r"[1-9][0-9]*(?:[kKmMgGtT]|%)?")
_MODE = re.compile(r"[01]?[0-7]{3}")
_DEVICE = re.compile(r"/dev/[A-Za-z0-9/._-]+|(?:UUID|PARTUUID|LABEL|PARTLABEL)=[A-Za-z0-9._-]+")
_FSTYPE = re.compile(r"[a-z][a-z0-9]*")


class TmpfsSection(Section):
    """`tmpfs` of an entry."""

    size: str = "50%"
    mode: str = "1777"


class LocalSection(Section):
    """`local` of an entry."""

    fstype: str = ""
    # nodes see each other's files there: a cluster file system, or a directory that they share
    shared: Boolean = False


def _check_tmpfs(mount: Mount, _site: Site) -> Iterator[Fault]:
    size, mode = str(mount.settings.get("size", "50%")), str(mount.settings.get("mode", "1777"))
    if mount.source:
        yield "source", RefusedError("a tmpfs has none: it is memory", "leave it out")
    if not _SIZE.fullmatch(size) or (size.endswith("%") and int(size[:-1]) > 100):
        yield (
            "tmpfs.size",
            RefusedError(f"{shorten(size)!r} is not a valid size", "write 16G, or 25% of the node's memory"),
        )
    if not _MODE.fullmatch(mode):
        yield "tmpfs.mode", RefusedError(f"{shorten(mode)!r} is not a valid mode", 'write it in quotes: "1777"')


def _check_local(mount: Mount, _site: Site) -> Iterator[Fault]:
    fstype = str(mount.settings.get("fstype", ""))
    if not _DEVICE.fullmatch(mount.source) and not mount.source.startswith("/"):
        what = f"{shorten(mount.source)!r} is neither a disk nor a directory"
        yield "source", RefusedError(what, "write /dev/disk/by-id/..., UUID=..., LABEL=..., or the path of a directory")
    elif not _DEVICE.fullmatch(mount.source) and fstype:
        yield "local.fstype", RefusedError("a directory has none of its own", "leave it out")
    if fstype and not _FSTYPE.fullmatch(fstype):
        yield "local.fstype", RefusedError(f"{shorten(fstype)!r} is not a file system", "write xfs or ext4")
    if is_directory(mount.source) and mount.source.rstrip("/") == mount.path:
        yield (
            "source",
            RefusedError("is the path itself: there is nothing to mount", "name another directory or a disk"),
        )


def is_directory(source: str) -> bool:
    """Whether a `local` entry is another directory of the node."""
    return source.startswith("/") and not source.startswith("/dev/")


def tmpfs_needs(mount: Mount, _platform: Platform) -> Needs:
    """Mount unit of a tmpfs."""
    size, mode = mount.settings.get("size", "50%"), mount.settings.get("mode", "1777")
    return Needs("tmpfs", "tmpfs", (f"size={size}", f"mode={mode}", *mount.options))


def local_needs(mount: Mount, _platform: Platform) -> Needs:
    """Mount unit of a disk, or a bind mount of another directory."""
    if is_directory(mount.source):
        return Needs(mount.source, "none", ("bind", *mount.options))
    prefix, equals, value = mount.source.partition("=")
    what = f"/dev/disk/by-{prefix.lower()}/{value}" if equals else mount.source
    return Needs(what, str(mount.settings.get("fstype", "")) or "auto", mount.options)


TMPFS = TypeHandler(
    TmpfsSection,
    _check_tmpfs,
    tmpfs_needs,
    owned={"size": "tmpfs: {size: ...}", "mode": "tmpfs: {mode: ...}"},
    needs_source=False,
)
LOCAL = TypeHandler(
    LocalSection, _check_local, local_needs, owned={"bind": "a directory as source", "rbind": "a directory as source"}
)
