"""Arguments in systemd's ExecStart."""

from __future__ import annotations


def systemd_argument(word: str) -> str:
    """A word that reaches the program as it is."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(letter in word for letter in " \t'\";\\") else escaped
