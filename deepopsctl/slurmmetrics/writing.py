"""The file that node exporter reads, and what systemd is told of this program."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write the text; a reader has the old or the new, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    # what ends in .prom is read: the file beside does not
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(beside, path)


def remove(path: Path) -> None:
    """Nothing is said any more: old values would look like new ones."""
    path.unlink(missing_ok=True)


def notify(message: str) -> None:
    """Tell systemd, where it started this: READY=1 once, WATCHDOG=1 after each round. Otherwise nothing."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return
    if where.startswith("@"):
        where = f"\0{where[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(message.encode(), where)
