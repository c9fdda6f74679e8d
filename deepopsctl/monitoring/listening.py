"""Addresses with ports, as daemons and URLs want them."""

from __future__ import annotations


def at(address: str, port: int) -> str:
    """Where a daemon listens, or is reached: `192.0.2.1:9100`, `[2001:db8::1]:9100`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
