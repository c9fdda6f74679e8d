"""Passwords that a command asks for, and a clean end if it is terminated meanwhile."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import click

from deepopsctl.cli.output import info
from deepopsctl.cluster.ssh_login import Login


@dataclass(frozen=True, slots=True)
class Passwords:
    """Passwords from options or from prompts; `sudo` is None if sudo is not tested with a password."""

    login: str
    ask: Callable[[], str] | None
    sudo: str | None


def read_passwords(user: str, file: Path | None, *, ask_pass: bool, ask_become_pass: bool) -> Passwords:
    """Passwords from the options; `ask` prompts later, when one is needed."""
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
    return _ask(text, default)


def _read(file: Path) -> str:
    from deepopsctl.ssh.passwords import first_line, read_password

    return first_line(sys.stdin.readline()) if str(file) == "-" else read_password(file)


def ask_login(options: Mapping[str, Any]) -> Login:
    """The login of the connection options; -k and -K ask on the terminal, without echo.

    An empty sudo password repeats the SSH one.
    """
    first = _ask("SSH password") if options.get("ask_pass") else None
    second = None
    if options.get("ask_become_pass"):
        question = "sudo password" + (" [the same]" if first else "")
        second = _ask(question, default=first or "")
    return Login(options.get("user") or "", first, second)


def _ask(text: str, default: str | None = None) -> str:
    try:
        answer: str = click.prompt(text, default=default, hide_input=True, show_default=False, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            message = f"{text}: the input ended without a password (is there no terminal to ask on?)"
            raise click.UsageError(message) from None
        raise
    return answer


@contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM and a closed terminal as Ctrl-C: children are killed, unfinished work is reported."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    # what is ignored from outside (nohup) stays so
    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
