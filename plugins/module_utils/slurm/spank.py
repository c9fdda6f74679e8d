"""SPANK plugins that plugstack.conf has slurmd and every job load, and the release of Slurm that each was built for.

One of another release is not loaded: where plugstack.conf requires it, slurmd does not start, and no job does.
"""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

# the first that is there is in force: what slurmd fetched from slurmctld, or a file of the node's own
PLUGSTACKS = ("/run/slurm/conf/plugstack.conf", "/etc/slurm/plugstack.conf")
# of the cluster's own packages (slurm-wlm-pyxis)
OF_PACKAGES = "/usr/lib/pyxis/"
HINT = "install it on all nodes, built for their Slurm, or make its line `optional` (docs/deploy/spank.md)"
# more deeply than anybody nests files
_DEPTH = 8
_MOST_BYTES = 64 << 20
# of a 64-bit little-endian ELF file: header, section header, symbol
_HEADER, _SECTION, _SYMBOL = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"
_DYNSYM, _UNDEFINED, _RESERVED = 11, 0, 0xFF00
# SLURM_VERSION_NUMBER is 0xYYMMPP in this variable of each plugin
_VARIABLE = b"plugin_version"


def plugins(paths: Sequence[str] = PLUGSTACKS, directory: str = "") -> list[dict[str, Any]]:
    """What it loads: `path`, `arguments`, whether it is `required` and `there`, `version` ("24.11.5", '' if unknown).

    One without a directory is in Slurm's own: in `directory`, or it comes with the packages.
    """
    return _examined(_lines(next(filter(os.path.exists, paths), ""), 0), directory)


def obstacles(version: str, text: str | None = None, *, before_packages: bool = False) -> list[str]:
    """Why slurmd of this version would not start: required plugins that it can't load. `text` is a plugstack.conf.

    With an unknown version ('') only those that are not there. `before_packages`: the cluster's own packages are
    installed, or replaced, before this is put in force.
    """
    loaded = plugins() if text is None else _examined(_entries(text), "")
    reasons = []
    for plugin in filter(itemgetter("required"), loaded):
        if before_packages and plugin["path"].startswith(OF_PACKAGES):
            continue
        if not plugin["there"]:
            reasons.append(f"slurm_plugstack requires {plugin['path']}, which is not there")
        elif version and plugin["version"] and _release(plugin["version"]) != _release(version):
            built = f"which was built for Slurm {plugin['version']}"
            reasons.append(f"slurm_plugstack requires {plugin['path']}, {built}")
    return reasons


def _release(version: str) -> list[str]:
    return version.split(".")[:2]


def _examined(lines: Iterable[Sequence[str]], directory: str) -> list[dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {}
    for word, name, *arguments in lines:
        own = os.path.join(directory, name)
        path = own if os.path.isfile(own) else name
        entry = entries.setdefault(path, {"path": path, "arguments": " ".join(arguments), "required": False})
        entry["required"] = entry["required"] or word == "required"
        entry["there"] = os.path.isfile(path) or not os.path.isabs(path)
        entry["version"] = version_of(path)
    return list(entries.values())


def _lines(path: str, depth: int) -> Iterator[Sequence[str]]:
    for words in _entries(_read(path).decode(errors="replace")) if depth < _DEPTH else ():
        if words[0] == "include":
            for included in sorted(glob.glob(os.path.join(os.path.dirname(path), words[1]))):
                yield from _lines(included, depth + 1)
        else:
            yield words


def _entries(text: str) -> Iterator[Sequence[str]]:
    """The words of each line that has a meaning."""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1 and words[0] in ("include", "required", "optional"):
            yield words


def version_of(path: str) -> str:
    """The version of Slurm that a plugin was built with, '' where it has none; nothing of it is run."""
    try:
        number = _number(_read(path))
    except (struct.error, ArithmeticError, IndexError, ValueError):
        return ""
    return f"{number >> 16}.{number >> 8 & 0xFF:02d}.{number & 0xFF}" if number else ""


def _number(content: bytes) -> int:
    if content[:6] != b"\x7fELF\x02\x01":
        return 0
    header = struct.unpack_from(_HEADER, content)
    start, size, count = header[6], header[11], header[12]
    sections = [struct.unpack_from(_SECTION, content, start + index * size) for index in range(count)]
    for symbols in (section for section in sections if section[1] == _DYNSYM):
        names = sections[symbols[6]]
        for offset in range(symbols[4], symbols[4] + symbols[5], struct.calcsize(_SYMBOL)):
            name, _info, _other, index, value, _size = struct.unpack_from(_SYMBOL, content, offset)
            at = names[4] + name
            if content[at : content.index(b"\0", at)] == _VARIABLE and _UNDEFINED < index < _RESERVED:
                where = sections[index]
                return int(struct.unpack_from("<I", content, where[4] + value - where[3])[0])
    return 0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError:
        return b""
