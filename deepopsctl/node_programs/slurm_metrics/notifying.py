"""Notifications to systemd."""

from __future__ import annotations

import os
import socket


def notify(message: str) -> None:
    """Notify systemd: READY=1 once, WATCHDOG=1 after each round. No effect outside of a unit."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return
    if where.startswith("@"):
        where = f"\0{where[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(message.encode(), where)
