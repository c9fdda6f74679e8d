"""Texts of systemd's files: drop-ins that change how a package's daemon is started, and units of our own programs."""

from __future__ import annotations

from collections.abc import Sequence

from deepopsctl.monitoring.needs import File
from deepopsctl.ours import HEADER

FOLDER = "/etc/systemd/system"


def started_by(unit: str, command: Sequence[str], *more: str) -> File:
    """A drop-in that starts a package's unit in another way; `more` are lines of its section Service.

    The package's own file of arguments (/etc/default/...) stays as it came, and is not read.
    """
    lines = ["[Service]", "EnvironmentFile=", "ExecStart=", f"ExecStart={_quoted(command)}", *more]
    return File(f"{FOLDER}/{unit}.d/deepopsctl.conf", HEADER + "\n".join(lines) + "\n")


def service(name: str, description: str, command: Sequence[str], *more: str) -> File:
    """A unit of ours that runs for as long as the machine does, and comes back 15 s after it failed."""
    lines = [
        "[Unit]",
        f"Description={description}",
        "",
        "[Service]",
        f"ExecStart={_quoted(command)}",
        "Restart=always",
        "RestartSec=15",
        *more,
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return File(f"{FOLDER}/{name}.service", HEADER + "\n".join(lines) + "\n")


def _quoted(command: Sequence[str]) -> str:
    """One argument a line, so that a diff shows which of them changed; systemd's own escapes."""
    return " \\\n    ".join(_word(word) for word in command)


def _word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(letter in word for letter in " \t'\";\\") else escaped
