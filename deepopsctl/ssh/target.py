"""A machine as ssh is told about it, and how paths are written for ssh."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """One machine: its name in reports, how to reach it, the proxy command where there is no direct way."""

    name: str
    destination: str
    user: str = ""
    port: int = 0
    proxy: str = ""

    def arguments(self) -> list[str]:
        """What ssh needs to know about this machine, the destination last."""
        port = ["-p", str(self.port)] if self.port else []
        user = ["-l", self.user] if self.user else []
        proxy = ["-o", f"ProxyCommand={self.proxy}"] if self.proxy else []
        return [*port, *user, *proxy, "--", self.destination]


def quoted(path: Path | str) -> str:
    """A path as ssh's configuration reads it: with blanks, and % meaning itself."""
    return '"' + str(path).replace("%", "%%") + '"'


def options(pairs: dict[str, object]) -> list[str]:
    """`-o KEY=VALUE` for each pair."""
    return [part for key, value in pairs.items() for part in ("-o", f"{key}={value}")]
