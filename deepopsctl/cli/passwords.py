"""Passwords that a command asks for, and an end in good order where it is terminated meanwhile."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from deepopsctl.cli.output import info

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Passwords:
    """What was given or can be asked: `sudo` is None where sudo shall not be tried with a password."""

    login: str
    ask: Callable[[], str] | None
    sudo: str | None


def read_passwords(user: str, file: Path | None, *, ask_pass: bool, ask_become_pass: bool) -> Passwords:
    """What the options give, and what can be asked for when it is needed."""
    ask = (lambda: _prompt(f"SSH password of {user}")) if sys.stdin.isatty() else None
    login = _read(file) if file else _prompt(f"SSH password of {user}") if ask_pass else ""
    if not ask_become_pass:
        return Passwords(login, ask, None)
    sudo = _prompt("sudo password (empty: the SSH password)", default="")
    login = login if sudo or login else _prompt(f"SSH password of {user}")
    return Passwords(login, ask, sudo or login)


def _prompt(text: str, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for a password on: give --password-file FILE")
    # the terminal may be busy with the counter line
    info("")
    answer: str = click.prompt(text, default=default, hide_input=True, show_default=False, err=True)
    return answer


def _read(file: Path) -> str:
    from deepopsctl.ssh.password_file import first_line, read_password

    return first_line(sys.stdin.readline()) if str(file) == "-" else read_password(file)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: children are killed, and what is left is said."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
