"""Storage on which other nodes can write files that give rights here: setuid programs, devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..._shared import mount_table
from .query import read

# what others serve, and deepopsctl has no client for
_OTHERS = re.compile(r"cifs|smb3|9p|virtiofs|wekafs|panfs|orangefs|fuse\.(juicefs|sshfs|mfs|curvefs)")
_WITHHELD = ("nosuid", "nodev")
# what NFS serves, and to whom; written by exportfs
EXPORTED = "/var/lib/nfs/etab"


def rights(table: str = mount_table.TABLE, exported: str = EXPORTED) -> list[dict[str, Any]]:
    """Mounted or exported directories whose mount honours setuid programs or devices, by path.

    `served` are those that this node exports: it is root of the clients who may write there.
    """
    mounted = mount_table.read(table)
    return [
        {"path": path, "type": entry.type, "served": served, "lacks": lacks}
        for path, entry, served in sorted(_shared(mounted, read(exported)))
        for lacks in [[flag for flag in _WITHHELD if flag not in entry.options]]
        if lacks
    ]


def _shared(mounted: list[mount_table.Mounted], exported: str) -> Iterator[tuple[str, mount_table.Mounted, bool]]:
    for entry in mounted:
        networked = mount_table.NETWORK.fullmatch(entry.type) or _OTHERS.fullmatch(entry.type)
        if networked and mount_table.on_top(mounted, entry.path) == entry:
            yield entry.path, entry, False
    # a read-only export brings nothing here
    for path in {line.split("\t")[0] for line in exported.splitlines() if "(rw," in line}:
        directory = mount_table.unescaped(path)
        around = mount_table.around(mounted, directory)
        if around:
            yield directory, around, True
