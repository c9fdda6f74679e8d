"""`deepops-proxy-user`: tells Squid which user a connection is from, by asking the node that it comes from.

Squid writes `CHANNEL ADDRESS PORT OWN-PORT`, and gets `CHANNEL OK user=NAME message=NAME`; without a name where the
node does not answer. No request is refused for that: the name is for the log and for the text of a refusal.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

THREADS = 32
LIMIT_S = 2.0
# a node that does not answer is left alone for so long
SILENT_S = 30.0
_NAME = re.compile(rb"\d+\s*,\s*\d+\s*:\s*USERID\s*:\s*UNIX\s*:\s*([A-Za-z0-9._@-]{1,64})\r?\n?")
UNKNOWN = "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer until Squid closes the input."""
    parser = argparse.ArgumentParser(prog="deepops-proxy-user", description="Tell Squid the user of a connection.")
    parser.add_argument("--port", type=int, default=113, help="where nodes answer (default: %(default)s)")
    options = parser.parse_args(arguments)
    serve(sys.stdin, sys.stdout, Nodes(options.port))
    return 0


class Nodes:
    """The nodes that connections come from."""

    def __init__(self, port: int, limit_s: float = LIMIT_S) -> None:
        self._port, self._limit_s = port, limit_s
        self._silent: dict[str, float] = {}

    def user(self, address: str, port: int, own_port: int) -> str:
        """The user of a connection from there; '-' where it is not known."""
        if self._silent.get(address, 0.0) > time.monotonic():
            return UNKNOWN
        try:
            with socket.create_connection((address, self._port), self._limit_s) as connection:
                connection.sendall(f"{port}, {own_port}\r\n".encode())
                with connection.makefile("rb") as stream:
                    line = stream.readline(512)
        except OSError:
            self._silent[address] = time.monotonic() + SILENT_S
            return UNKNOWN
        match = _NAME.fullmatch(line)
        return match[1].decode() if match else UNKNOWN


def serve(questions: TextIO, answers: TextIO, nodes: Nodes) -> None:
    """Answer each line, several at a time."""
    lock = threading.Lock()

    def reply(line: str) -> None:
        channel, *words = line.split()
        try:
            user = nodes.user(words[0], int(words[1]), int(words[2]))
        except (IndexError, ValueError):
            user = UNKNOWN
        known = f" user={user} message={user}" if user != UNKNOWN else ""
        with lock:
            answers.write(f"{channel} OK{known}\n")
            answers.flush()

    with ThreadPoolExecutor(THREADS) as pool:
        for line in questions:
            if line.strip():
                pool.submit(reply, line)
