"""Where a node's journal is stored on the log host."""

from __future__ import annotations

import hashlib

DIRECTORY = "/var/log/journal/remote"


def address_of(name: str) -> str:
    """The loopback address from which a node's journal is sent to systemd-journal-remote.

    It writes one file per peer address, and Debian's build can't check certificates: the TLS proxy does, and
    connects from an address of the node. There are 15 million: that two nodes share one, and so a file, is
    unlikely, and their entries still have the node's name.
    """
    first, second, third = hashlib.sha256(name.encode()).digest()[:3]
    return f"127.{16 + first % 240}.{second}.{third}"


def files_of(name: str) -> str:
    """All files of a node, as a pattern for `journalctl --file`: the open one, and the closed `@...` files."""
    return f"{DIRECTORY}/remote-{address_of(name)}[.@]*"
