"""Ports of this host's loopback."""

from __future__ import annotations

import socket


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether anybody does there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
