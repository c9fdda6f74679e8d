"""What a job does on its node. Its text is handed to `python3 -c`: standard library, no relative imports.

It opens a port and says which; then it gets the plan by its input: rounds in which each node measures with another one
by TCP, first the time of a small message there and back, then bytes a second in one direction and in the other: a cable
may be bad in one. Then the same by RDMA over each port that both have, by perftest's programs. One line
`DEEPOPS {json}` for each pair, and for each pair of ports.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

MARK = "DEEPOPS "
WAIT_S, MESSAGES, CHUNK = 30.0, 300, 1 << 20
# of what the server has counted
WIDTH = 20
# rounds in which ports measure are numbered from here
RDMA = 1 << 16
# of perftest: a write goes there, a read comes back; the column of what is asked for (Gbit/s, typical microseconds)
PROGRAMS = {
    "there": (["ib_write_bw", "--report_gbits", "--iters=10000"], 3),
    "back": (["ib_read_bw", "--report_gbits", "--iters=10000"], 3),
    "us": (["ib_write_lat", "--iters=1000"], 4),
}
PROGRAM_S, NO_SERVER, START_S, AGAIN_S = 15.0, "Couldn't connect", 5.0, 0.2
GOOD = b"+"


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


def free_port() -> int:
    """A TCP port for perftest's own connection."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


def options(port: str, at: int) -> list[str]:
    """Options of perftest for a port (`mlx5_0/1`); without a warning about the processor's frequency."""
    device, _slash, number = port.partition("/")
    return ["--ib-dev=" + device, "--ib-port=" + number, "--port=" + str(at), "--CPU-freq"]


def run_perftest(argv: list[str]) -> tuple[str, str]:
    """Output and error of a program of perftest."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PROGRAM_S)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return "", str(failure)[:200]
    words = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
    return done.stdout.decode(errors="replace"), (argv[0] + ": " + words)[:200] if done.returncode else ""


def run_client(argv: list[str]) -> tuple[str, str]:
    """The same of a client, whose server may not listen yet."""
    until = time.monotonic() + START_S
    while True:
        output, error = run_perftest(argv)
        if NO_SERVER not in output + error or time.monotonic() > until:
            return output, error
        time.sleep(AGAIN_S)


def value(output: str, column: int) -> float:
    """A number of perftest's table, which has one line of numbers. Raises ValueError."""
    for line in output.splitlines():
        words = line.split()
        if len(words) > column and words[0].isdigit():
            return float(words[column])
    raise ValueError("perftest has printed no numbers")


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

    def serve_ports(self, number: int, token: bytes, client: str, ports: list[str]) -> None:
        """Run the servers of perftest, one after the other, as long as the client has results."""
        with self.accept(RDMA + number, token) as connection:
            for port in ports:
                for argv, _column in PROGRAMS.values():
                    at = free_port()
                    connection.sendall(str(at).encode().ljust(WIDTH))
                    _output, error = run_perftest([*argv, *options(port, at)])
                    if error:
                        say(peer=client, rdma=port, error=error)
                    if exactly(connection, len(GOOD)) != GOOD:
                        return

    def ask_ports(self, number: int, token: bytes, peer: dict[str, Any], ports: list[str]) -> None:
        """Run the clients, and report each pair of ports; nothing more after an error."""
        with socket.create_connection((peer["address"], peer["port"]), WAIT_S) as connection:
            connection.settimeout(WAIT_S)
            connection.sendall(token + (RDMA + number).to_bytes(4, "big"))
            for port in ports:
                measured = {}
                for name, (argv, column) in PROGRAMS.items():
                    at = int(exactly(connection, WIDTH))
                    output, error = run_client([*argv, *options(port, at), peer["address"]])
                    if error:
                        say(peer=peer["node"], rdma=port, error=error)
                        return
                    measured[name] = value(output, column)
                    connection.sendall(GOOD)
                rate = min(measured["there"], measured["back"]) * 1e9 / 8
                say(peer=peer["node"], rdma=port, us=measured["us"], bytes_s=rate)

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
    say(port=node.port, perftest=all(shutil.which(argv[0]) for argv, _column in PROGRAMS.values()))
    plan = json.loads(sys.stdin.readline() or "{}")
    own, token = os.environ.get("SLURMD_NODENAME", ""), str(plan.get("token", "")).encode()
    # half of it for each direction
    seconds = float(plan.get("seconds", 0)) / 2
    for number, pairs in enumerate(plan.get("rounds", [])):
        for client, server in pairs:
            ports = sorted(set(plan["peers"][client]["rdma"]) & set(plan["peers"][server]["rdma"]))
            try:
                if own == client:
                    node.ask(number, token, plan["peers"][server], seconds)
                    if ports:
                        node.ask_ports(number, token, plan["peers"][server], ports)
                elif own == server:
                    node.serve(number, token, seconds)
                    if ports:
                        node.serve_ports(number, token, client, ports)
            except (OSError, ValueError) as error:
                say(peer=server if own == client else client, error=str(error)[:200])


if __name__ == "__main__":
    main()
