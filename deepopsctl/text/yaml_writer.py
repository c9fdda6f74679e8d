"""Writes plain YAML, fast and deterministic: generated files and the files of `init`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

# Anything YAML 1.1 might take for something else than this very word is quoted.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = frozenset(["y", "n", "yes", "no", "true", "false", "on", "off", "null"])


def block(value: Mapping[str, object], indent: int = 0) -> str:
    """A mapping in block style, keys in their given order."""
    return "".join(_block_lines(value, indent))


def flow(value: object) -> str:
    """A value on one line: `{names: "gpu[01-16]", roles: [compute]}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value)


def scalar(value: object) -> str:
    """One scalar, quoted where a reader of YAML 1.1 or 1.2 could misread it."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


@lru_cache(maxsize=1024)
def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _block_lines(value: Mapping[str, object], indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, item in value.items():
        if isinstance(item, Mapping) and item and not _is_small(item):
            yield f"{pad}{scalar(key)}:\n"
            yield from _block_lines(item, indent + 2)
        elif isinstance(item, Sequence) and not isinstance(item, str) and item:
            yield f"{pad}{scalar(key)}:\n"
            for element in item:
                yield f"{pad}  - {flow(element)}\n"
        elif item is None:
            yield f"{pad}{scalar(key)}:\n"
        else:
            yield f"{pad}{scalar(key)}: {flow(item)}\n"


def _is_small(value: Mapping[str, object]) -> bool:
    """Whether a mapping reads better on one line: nothing but scalars, all with a value."""
    return all(isinstance(item, (str, int)) for item in value.values())
