"""What the package manager of a node knows: it only asks. For modules, and by a link for node programs. Python 3.8."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from . import command

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
UPDATES = "/var/lib/dpkg/updates"
DATABASE = "/var/lib/dpkg"
CONFIGURATION = "/etc/apt"
LISTS = "/var/lib/apt"
_ADDRESS = re.compile(r"https?://[^\s\]]+")
_DISABLED = re.compile(r"^enabled:\s*(no|false|0|off|without|disable)\s*$", re.IGNORECASE | re.MULTILINE)
_FORMAT = "--showformat=${Package} ${db:Status-Want} ${db:Status-Status} ${Version}\n"
_ANSWER_S = 60


class State(NamedTuple):
    """A package that is or was there: `wanted` is `hold` where it must stay as it is."""

    wanted: str
    status: str
    version: str = ""


def _output(*argv: str) -> str:
    """What a command that only asks prints, however it ends: it complains about each name that it does not know."""
    return command.run(list(argv), _ANSWER_S, env=command.environment()).output


def states(names: Sequence[str]) -> dict[str, State]:
    """{name: state} of those that the node has, or has had; names may be patterns, and none are all packages."""
    return states_in(_output("dpkg-query", "--show", _FORMAT, *names))


def states_in(shown: str) -> dict[str, State]:
    """The same from what dpkg-query prints."""
    rows = (line.split() for line in shown.splitlines())
    return {row[0]: State(*row[1:]) for row in rows if len(row) in (3, 4)}


def installed(names: Sequence[str]) -> dict[str, str]:
    """{name: version} of those that are installed and configured; names may be patterns."""
    there = states(names) if names else {}
    return {name: state.version for name, state in there.items() if state.status == "installed"}


def held() -> set[str]:
    """Packages that must stay as they are; every gate asks, and apt-mark would take many times as long."""
    return {name for name, state in states([]).items() if state.wanted == "hold"}


def is_packaged(path: str) -> bool:
    """Whether this file belongs to a package."""
    return bool(_output("dpkg-query", "--search", path))


def control(archive: str) -> str:
    """The description of a package's file, as an index has it."""
    return _output("dpkg-deb", "--field", archive).strip()


def broken() -> list[str]:
    """Packages that are half-installed, unpacked, half-configured ..."""
    # only such packages have an indented line of their own
    return re.findall(r"^ (\S+)\s", _output("dpkg", "--audit") + "\n", re.MULTILINE)


def interrupted() -> list[str]:
    """What was not written down yet when a transaction was cut off."""
    try:
        return [name for name in os.listdir(UPDATES) if name.isdigit()]
    except OSError:
        return []


def settings() -> dict[str, list[str]]:
    """apt's configuration: of each key its values; of a list those of its entries."""
    return settings_in(_output("apt-config", "dump"))


def settings_in(dump: str) -> dict[str, list[str]]:
    """The same from what apt-config prints."""
    values: dict[str, list[str]] = {}
    for key, value in re.findall(r'^(\S+?)(?:::)? "(.*)";$', dump, re.MULTILINE):
        if value:
            values.setdefault(key, []).append(value)
    return values


def addresses(directory: str = CONFIGURATION) -> list[str]:
    """Where packages come from here, as far as it is by HTTP."""
    urls: set[str] = set()
    for path in [os.path.join(directory, "sources.list"), *glob.glob(os.path.join(directory, "sources.list.d", "*"))]:
        if path.endswith((".list", ".sources")):
            for block in re.split(r"\n\s*\n", _text(path)):
                text = "\n".join(line for line in block.splitlines() if not line.lstrip().startswith("#"))
                urls.update(() if _DISABLED.search(text) else _ADDRESS.findall(text))
    return sorted(urls)


def proxies(directory: str = CONFIGURATION) -> dict[str, str]:
    """The package manager's own proxies by scheme; asking it is slow, and few nodes have one."""
    files = [os.path.join(directory, "apt.conf"), *glob.glob(os.path.join(directory, "apt.conf.d", "*"))]
    if not any("proxy" in _text(path).lower() for path in files):
        return {}
    values = settings()
    named = {scheme: values.get(f"Acquire::{scheme}::Proxy", [""])[-1] for scheme in ("http", "https")}
    # apt takes the first for both
    named["https"] = named["https"] or named["http"]
    return {scheme: value for scheme, value in named.items() if value and value != "DIRECT"}


def lists(directory: str = LISTS) -> list[str]:
    """What the package lists are, by name and size, and which packages came for others alone."""
    paths = sorted(glob.glob(os.path.join(directory, "lists", "*_*")))
    return [_text(os.path.join(directory, "extended_states")), *(f"{path} {os.path.getsize(path)}" for path in paths)]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
