"""What systemd is told of this program."""

from __future__ import annotations

import os
import socket


def notify(message: str) -> None:
    """Tell systemd, where it started this: READY=1 once, WATCHDOG=1 after each round. Otherwise nothing."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return
    if where.startswith("@"):
        where = f"\0{where[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(message.encode(), where)
