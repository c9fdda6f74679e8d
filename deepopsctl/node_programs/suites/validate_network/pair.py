"""What a job does on its node. Its text is handed to `python3 -c`: standard library, no relative imports.

It opens a port and says which; then it gets the plan by its input: rounds in which each node measures with another one
by TCP, first the time of a small message there and back, then bytes a second in one direction and in the other: a cable
may be bad in one. One line `DEEPOPS {json}` for each pair.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from typing import Any

MARK = "DEEPOPS "
WAIT_S, MESSAGES, CHUNK = 30.0, 300, 1 << 20
# of what the server has counted
WIDTH = 20


def say(**data: Any) -> None:
    """One line for the submit host."""
    sys.stdout.write(MARK + json.dumps({"node": os.environ.get("SLURMD_NODENAME", ""), **data}) + "\n")
    sys.stdout.flush()


def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes; fewer at the end of the connection."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def send(connection: socket.socket, seconds: float) -> None:
    """Send as much as there is time for, and no more."""
    block, until = bytes(CHUNK), time.monotonic() + seconds
    while time.monotonic() < until:
        connection.sendall(block)
    connection.shutdown(socket.SHUT_WR)


def count(connection: socket.socket) -> int:
    """Bytes a second that come, until no more do."""
    total, buffer = 0, bytearray(CHUNK)
    began = time.perf_counter()
    while True:
        got = connection.recv_into(buffer)
        if not got:
            return round(total / max(time.perf_counter() - began, 1e-9))
        total += got


class Node:
    """This node's port, and connections of later rounds that came early."""

    def __init__(self) -> None:
        self.server = socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
        if socket.has_ipv6:
            self.server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.server.bind(("", 0))
        self.server.listen(64)
        self.early: dict[int, socket.socket] = {}

    @property
    def port(self) -> int:
        """Where others reach it."""
        return int(self.server.getsockname()[1])

    def accept(self, number: int, token: bytes) -> socket.socket:
        """The connection of this round."""
        until = time.monotonic() + WAIT_S
        while number not in self.early:
            self.server.settimeout(max(until - time.monotonic(), 0.1))
            connection, _address = self.server.accept()
            connection.settimeout(WAIT_S)
            # other programs may try ports
            if exactly(connection, len(token)) == token:
                self.early[int.from_bytes(exactly(connection, 4), "big")] = connection
            else:
                connection.close()
        return self.early.pop(number)

    def serve(self, number: int, token: bytes, seconds: float) -> None:
        """Answer each small message, then count what comes, and send as long."""
        with self.accept(number, token) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _message in range(MESSAGES):
                connection.sendall(exactly(connection, 1))
            connection.sendall(str(count(connection)).encode().ljust(WIDTH))
            send(connection, seconds)

    def ask(self, number: int, token: bytes, peer: dict[str, Any], seconds: float) -> None:
        """Measure with a peer, and report."""
        with socket.create_connection((peer["address"], peer["port"]), WAIT_S) as connection:
            connection.settimeout(WAIT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(token + number.to_bytes(4, "big"))
            times = []
            for _message in range(MESSAGES):
                began = time.perf_counter()
                connection.sendall(b"x")
                exactly(connection, 1)
                times.append(time.perf_counter() - began)
            send(connection, seconds)
            there = int(exactly(connection, WIDTH) or 0)
            rate = min(there, count(connection))
        # one way; half of the median of there and back
        microseconds = statistics.median(times) / 2 * 1e6
        say(peer=peer["node"], us=round(microseconds, 2), bytes_s=rate)


def main() -> None:
    """One node of the job."""
    node = Node()
    say(port=node.port)
    plan = json.loads(sys.stdin.readline() or "{}")
    own, token = os.environ.get("SLURMD_NODENAME", ""), str(plan.get("token", "")).encode()
    # half of it for each direction
    seconds = float(plan.get("seconds", 0)) / 2
    for number, pairs in enumerate(plan.get("rounds", [])):
        for client, server in pairs:
            try:
                if own == client:
                    node.ask(number, token, plan["peers"][server], seconds)
                elif own == server:
                    node.serve(number, token, seconds)
            except (OSError, ValueError) as error:
                say(peer=server if own == client else client, error=str(error)[:200])


if __name__ == "__main__":
    main()
