"""Clients that connect and say nothing, or not enough: what a listener has to bear."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def silent_clients(
    port: int, count: int, says: bytes = b"", source: str = "127.0.0.2", address: str = "127.0.0.1"
) -> Iterator[list[socket.socket]]:
    """So many connections from one address, each with the beginning of a request, or nothing."""
    clients: list[socket.socket] = []
    try:
        for _ in range(count):
            client = socket.create_connection((address, port), timeout=60, source_address=(source, 0))
            clients.append(client)
            if says:
                try:
                    client.sendall(says)
                except ConnectionError:
                    # refused already
                    continue
        yield clients
    finally:
        for client in clients:
            client.close()


def closed_by_server(clients: list[socket.socket], limit_s: float = 30.0) -> int:
    """How many of them the server has closed, after some time for it; all of them end the wait."""
    until = time.monotonic() + limit_s
    closed: set[int] = set()
    while len(closed) < len(clients) and time.monotonic() < until:
        for number, client in enumerate(clients):
            if number not in closed and _is_closed(client):
                closed.add(number)
        time.sleep(0.05)
    return len(closed)


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no memory")


def _is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        while client.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True
