"""What is mounted at a path."""

from __future__ import annotations

import re

MOUNTS = "/proc/self/mountinfo"
# what nodes see each other's files on, as the kernel names it
NETWORK = re.compile(r"nfs4?|lustre|beegfs|ceph|fuse\.ceph.*|fuse\.glusterfs|gpfs|gfs2|ocfs2")


def mounted_type(path: str, table: str = MOUNTS) -> str:
    """The type of the file system that is mounted at exactly this path; '' for none."""
    fstype = ""
    with open(table, encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            fields, _, rest = line.partition(" - ")
            if _unescape(fields.split()[4]) == path:
                # what was mounted last covers the others
                fstype = rest.split()[0]
    return "" if fstype == "autofs" else fstype


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
