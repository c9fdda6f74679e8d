"""What is mounted at a path."""

from __future__ import annotations

from ..._shared.mount_table import TABLE, on_top, read


def mounted_type(path: str, table: str = TABLE) -> str:
    """The type of the file system that is mounted at exactly this path; '' for none."""
    mount = on_top(read(table), path)
    return mount.type if mount else ""
