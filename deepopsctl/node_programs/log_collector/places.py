"""Where a node's journal is kept on the log host."""

from __future__ import annotations

import hashlib

DIRECTORY = "/var/log/journal/remote"


def address_of(name: str) -> str:
    """The loopback address that a node's journal is handed to systemd-journal-remote from.

    It keeps a file for each address that it hears from, and Debian's can't ask for certificates: the door does, and
    comes from an address that is the node's alone. 15 million of them: that two nodes share one, and so a file, is
    unlikely, and their lines still have their names.
    """
    first, second, third = hashlib.sha256(name.encode()).digest()[:3]
    return "127.{}.{}.{}".format(16 + first % 240, second, third)


def files_of(name: str) -> str:
    """All files of a node, as `journalctl --file` takes them: the one that is written to, and `@...` that were."""
    return "{}/remote-{}[.@]*".format(DIRECTORY, address_of(name))
