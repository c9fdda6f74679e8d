"""Text from users and nodes without control and bidirectional characters."""

from __future__ import annotations

import re
from collections.abc import Mapping

# every colour that deepopsctl itself writes
_COLOURS = re.compile(r"(\x1b\[(?:0|1|2|3[1236]|90)m)")


def printable(text: str) -> str:
    """The text without unprintable characters; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)


def printable_tree(value: object) -> object:
    """The same for every string in a node's answer."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable_tree(key): printable_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable_tree(item) for item in value]
    return value


def coloured(text: str) -> str:
    """The same, but deepopsctl's own colours stay."""
    if text.isprintable():
        return text
    return "".join(part if number % 2 else printable(part) for number, part in enumerate(_COLOURS.split(text)))
