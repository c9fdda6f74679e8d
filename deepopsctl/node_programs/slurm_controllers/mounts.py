"""What is mounted at a path."""

from __future__ import annotations

import re

from .._shared.mount_table import TABLE, on_top, read

# what nodes see each other's files on, as the kernel names it
NETWORK = re.compile(r"nfs4?|lustre|beegfs|ceph|fuse\.ceph.*|fuse\.glusterfs|gpfs|gfs2|ocfs2")


def mounted_type(path: str, table: str = TABLE) -> str:
    """The type of the file system that is mounted at exactly this path; '' for none."""
    mount = on_top(read(table), path)
    return mount.type if mount else ""
