"""Slurm's hostlists, for nodes, which have no ClusterShell: `gpu[01-03,07],login1`."""

from __future__ import annotations

import re
from collections.abc import Sequence

# above Slurm's own MaxNodeCount
MOST_NODES = 1 << 16
_CHARACTERS = re.compile(r"[A-Za-z0-9_.,\[\]-]*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


class HostlistError(ValueError):
    """No list of nodes."""


def expand(text: str) -> list[str]:
    """The names, in the order of the list. Raises HostlistError."""
    text = text.strip()
    if not _CHARACTERS.fullmatch(text):
        raise _error(text)
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        names += _expand_part(part, MOST_NODES - len(names)) if part else []
    return names


def _expand_part(part: str, room: int) -> list[str]:
    group = _BRACKETS.search(part)
    if not group:
        if "[" in part or "]" in part:
            raise _error(part)
        return [part]
    tails = _expand_part(part[group.end() :], room)
    names: list[str] = []
    for item in group.group(1).split(","):
        span = _RANGE.fullmatch(item)
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (0, -1)
        if not span or not 0 < (last - first + 1) * len(tails) <= room - len(names):
            raise _error(part)
        for number in range(first, last + 1):
            head = part[: group.start()] + str(number).zfill(len(span[1]))
            names += [head + tail for tail in tails]
    return names


def _error(text: str) -> HostlistError:
    return HostlistError(f"{text[:80]!r} is not a list of nodes")


def written_out(text: str) -> str:
    """The list with commas where text follows a range (`r[1-2]-a`), which Slurm 22.05 does not read."""
    return ",".join(expand(text)) if re.search(r"\][^,]", text) else text


def fold(names: Sequence[str]) -> str:
    """Names as a short hostlist: those that end in rising numbers in one bracket."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in names:
        digits = re.search(r"[0-9]+$", name)
        if digits:
            groups.setdefault((name[: digits.start()], len(digits[0])), []).append(int(digits[0]))
        else:
            plain.append(name)
    return ",".join([*plain, *(_bracket(prefix, width, numbers) for (prefix, width), numbers in groups.items())])


def _bracket(prefix: str, width: int, numbers: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}" for first, last in ranges]
    return prefix + (texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]")
