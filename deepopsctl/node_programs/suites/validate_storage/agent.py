"""One node's part in trials that several nodes make together: it reads what to do, line by line, and answers.

Runs inside a job, from the job's input; it never touches a file system itself, its children do. When its input ends or
it is asked to go, what the trials made is removed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from typing import Any

from . import children, operations

MARK = "DEEPOPS-STORAGE "
HELLO = "hello"
# removing what the trials made, when no time is given for it
_LEAVING_S = 20.0


class JobEnded(Exception):  # noqa: N818 (no error: the job's end)
    """The job is being ended."""


class Agent:
    """`node` is what this node calls itself in answers."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._directories: list[str] = []
        self._held: dict[str, children.Child] = {}

    def serve(self, source: Iterable[bytes]) -> None:
        """Do what comes in, line by line, until it ends; then, or when the job is ended, leave nothing behind."""
        self.send({"n": HELLO, "pid": os.getpid()})
        try:
            for line in source:
                self.handle(line)
        except JobEnded:
            pass
        finally:
            self.clean_up()

    def handle(self, line: bytes) -> None:
        """One order, if it is for this node."""
        try:
            order = json.loads(line)
        except ValueError:
            return
        wanted = order.get("to")
        if wanted is None or self.node in wanted:
            self.send(dict(self.execute(order), n=order["n"]))

    def execute(self, order: dict[str, Any]) -> dict[str, Any]:
        """What came of an order."""
        act, limit = order["act"], float(order["limit"])
        # texts may name this node and the one whose files it reads
        parameters = _fill_names(
            order.get("with") or {}, dict((order.get("each") or {}).get(self.node) or {}, node=self.node)
        )
        if act == "mine":
            self._directories = sorted({*self._directories, *parameters["directories"]})
            return {}
        if act == "release":
            held = self._held.pop(parameters["key"], None)
            return {"released": held.end() if held else False}
        if act == "hold":
            key = parameters.pop("key")
            self._held[key] = children.Child(lambda: operations.hold(**parameters), operations.wait)
            return self._held[key].result(limit)
        return children.attempt(lambda: operations.OPERATIONS[act](**parameters), limit)

    def clean_up(self) -> None:
        """End what is held, remove what was made."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for held in self._held.values():
            held.end()
        if self._directories:
            children.attempt(lambda: operations.remove(self._directories), _LEAVING_S)

    def send(self, answer: dict[str, Any]) -> None:
        """One line for the process that gave the order."""
        text = MARK + json.dumps(dict(answer, node=self.node)) + "\n"
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            raise JobEnded from error


def _fill_names(parameters: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {
        key: value.format(**names) if isinstance(value, str) and "{" in value else value
        for key, value in parameters.items()
    }


def _end_job(_number: int, _frame: object | None) -> None:
    raise JobEnded


def main() -> None:
    """Serve the standard input; the command line may have the node's name."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end_job)
    names = [*sys.argv[1:], os.environ.get("SLURMD_NODENAME", ""), socket.gethostname()]
    # the program came over the same stream: what was read ahead of it is there
    Agent(next(filter(None, names))).serve(sys.stdin.buffer)
