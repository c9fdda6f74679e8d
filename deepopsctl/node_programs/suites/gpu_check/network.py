"""The network of a node as its kernel shows it: ports, and what they carry in one direction (GB/s)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ROOT = Path("/")


def network(root: Path = _ROOT) -> dict[str, Any]:
    """Ports that are up: {"rdma": [{"name", "gb_s"}], "ethernet": [...]}; hardware only, no bridge."""
    return {"rdma": list(_rdma(root)), "ethernet": list(_ethernet(root))}


def _rdma(root: Path) -> Iterator[dict[str, Any]]:
    for port in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        # `4: ACTIVE`, `400 Gb/sec (4X NDR)`; NCCL itself does not use other types (EFA)
        if "ACTIVE" in _read(port / "state") and _read(port / "link_layer") in ("InfiniBand", "Ethernet"):
            rate = _number(_read(port / "rate").partition(" ")[0])
            if rate > 0:
                yield {"name": f"{port.parent.parent.name}:{port.name}", "gb_s": rate / 8}


def _ethernet(root: Path) -> Iterator[dict[str, Any]]:
    for link in sorted(root.glob("sys/class/net/*/device")):
        card = link.parent
        # reading an interface that is down fails; one without a cable reports -1
        rate = _number(_read(card / "speed")) / 1000
        if _read(card / "operstate") == "up" and rate > 0:
            yield {"name": card.name, "gb_s": rate / 8}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
