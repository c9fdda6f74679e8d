"""What is mounted on this node, as the kernel has it in /proc/self/mountinfo."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

TABLE = "/proc/self/mountinfo"
AUTOFS = "autofs"
# what nodes see each other's files on, as the kernel names it
NETWORK = re.compile(r"nfs4?|lustre|beegfs|ceph|fuse\.ceph.*|fuse\.glusterfs|gpfs|gfs2|ocfs2")


class Mounted(NamedTuple):
    """One line of mountinfo; `root` is the mounted directory inside its file system, `device` MAJOR:MINOR of it."""

    path: str
    type: str
    source: str
    root: str
    options: tuple[str, ...]
    number: int
    device: str


def read(table: str = TABLE) -> list[Mounted]:
    """All mounts that this process sees."""
    with open(table, encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        return parse(stream.read())


def parse(text: str) -> list[Mounted]:
    """All mounts, in the kernel's order: what was mounted over another one comes later."""
    mounts = []
    # the kernel escapes no other separator of lines, and a user chooses where something is mounted
    for line in text.split("\n"):
        left, separator, right = line.partition(" - ")
        fields, more = left.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(more) < 3:
            continue
        options = tuple(dict.fromkeys([*fields[5].split(","), *more[2].split(",")]))
        path, root, source = (unescaped(field) for field in (fields[4], fields[3], more[1]))
        mounts.append(Mounted(path, more[0], source, root, options, int(fields[0]), fields[2]))
    return mounts


def on_top(mounted: Sequence[Mounted], path: str) -> Mounted | None:
    """What one sees at a path; a trigger of automount that nothing followed counts as nothing."""
    here = [entry for entry in mounted if entry.path == path]
    return here[-1] if here and here[-1].type != AUTOFS else None


def mounted_type(path: str, table: str = TABLE) -> str:
    """The type of the file system that is mounted at exactly this path; '' for none."""
    mount = on_top(read(table), path)
    return mount.type if mount else ""


def around(mounted: Sequence[Mounted], path: str) -> Mounted | None:
    """The mount that a path is on."""
    holders = [entry for entry in mounted if (path + "/").startswith(entry.path.rstrip("/") + "/")]
    # of several on one point the last one is on top
    return max(reversed(holders), key=lambda entry: len(entry.path), default=None)


def unescaped(text: str) -> str:
    """Blanks and the like are written in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
