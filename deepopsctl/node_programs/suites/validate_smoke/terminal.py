"""A person at a terminal: start a command on a real pty, wait for its prompt, type, read."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from typing import NamedTuple


class TerminalOutput(NamedTuple):
    """What appeared on the terminal; rc None when the command had to be stopped."""

    rc: object
    text: str
    prompted: bool


def _read(master: int, timeout: float) -> str:
    ready, _, _ = select.select([master], [], [], timeout)
    if not ready:
        return ""
    try:
        return os.read(master, 65536).decode(errors="replace")
    except OSError as error:
        if error.errno == errno.EIO:  # the other side has closed: Linux says so by an input/output error
            return ""
        raise


def type_into(
    argv: Sequence[str], typed: str, answer: str, environment: dict[str, str], timeout: float
) -> TerminalOutput:
    """Start argv on a new terminal, type a line at the prompt (again if it got lost), until `answer` appears."""
    master, slave = pty.openpty()
    # wide, so that what was typed is not wrapped; dumb, so that no colours and no bracketed paste come back
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
    process = subprocess.Popen(
        list(argv),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=dict(environment, TERM="dumb"),
    )
    os.close(slave)
    text, typed_at, until = "", 0.0, time.monotonic() + timeout
    try:
        while time.monotonic() < until and answer not in text:
            text += _read(master, 0.2)
            prompted = text.rstrip().endswith(("$", "#", ">", "%"))
            if prompted and time.monotonic() - typed_at > 3:
                os.write(master, typed.encode())
                typed_at = time.monotonic()
            if process.poll() is not None:
                text += _read(master, 0.1)
                break
        return _finish(process, master, text, prompted=typed_at > 0)
    finally:
        os.close(master)


def _finish(process: subprocess.Popen[bytes], master: int, text: str, *, prompted: bool) -> TerminalOutput:
    until = time.monotonic() + 5
    if process.poll() is None:
        os.write(master, b"exit\n")
    while process.poll() is None and time.monotonic() < until:
        text += _read(master, 0.2)
    if process.poll() is None:
        process.terminate()
        process.wait(5)
        return TerminalOutput(None, text, prompted)
    return TerminalOutput(process.returncode, text, prompted)
