"""The log host's two programs: the TLS proxy that receives journals (`proxy`), and the cleanup (`tidy`)."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Any

from ..._shared import command
from . import tidy, tls_proxy
from .places import DIRECTORY

OK, FAILED = 0, 1
# systemd's first socket
SOCKET = 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deepops-logs", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    receive_parser = verbs.add_parser("proxy", help="receive journals of nodes, on the socket that systemd passes")
    receive_parser.add_argument("--certificate", required=True)
    receive_parser.add_argument("--key", required=True)
    receive_parser.add_argument("--authority", required=True, help="certificate authority of the nodes")
    receive_parser.add_argument("--members", required=True, help="file with the names of all nodes, one per line")
    receive_parser.add_argument("--store", required=True, type=int, help="port of systemd-journal-remote on 127.0.0.1")
    tidy_parser = verbs.add_parser("tidy", help="remove journals that are too old or too large")
    tidy_parser.add_argument("--days", required=True, type=float)
    tidy_parser.add_argument("--gigabytes", required=True, type=float)
    tidy_parser.add_argument("--directory", default=DIRECTORY, help="(default: %(default)s)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one of them; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.verb == "proxy":
            _open(options)
        elif os.path.isdir(options.directory):
            _tidy(options)
    except (OSError, command.CommandError) as error:
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    return OK


def _open(options: argparse.Namespace) -> None:
    tls = tls_proxy.context(options.certificate, options.key, options.authority)
    serving = tls_proxy.serve(socket.socket(fileno=SOCKET), tls, options.members, ("127.0.0.1", options.store))
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_run_until_signal(serving))


def _tidy(options: argparse.Namespace) -> None:
    bounds = tidy.Bounds(options.days * tidy.DAY_S, int(options.gigabytes * 1e9))
    done = tidy.tidy(options.directory, bounds, time.time(), command.require)
    sys.stdout.write("".join(line + "\n" for line in done))


async def _run_until_signal(serving: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(serving)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task
