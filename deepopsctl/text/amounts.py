"""Numbers of things in sentences."""

from __future__ import annotations


def amount(number: int, one: str, many: str = "") -> str:
    """`1 node`, `3 nodes`; `many` where it is not `one` with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
