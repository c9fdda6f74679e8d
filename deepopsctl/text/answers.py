"""Untrusted values as typed ones: answers of nodes, documents of earlier runs, a site's variables.

Root of a compute node writes its answers. Types and sizes are looked at here and nowhere else: a value of
another type counts as missing, and a longer list or mapping is refused, since a part of it would pass for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn, Self, TypeVar

from deepopsctl.errors import DeepOpsError

T = TypeVar("T")
# more than any cluster has: characters of one text, entries of one list (jobs, for example), any counter
LONGEST_TEXT, MOST_ENTRIES, LARGEST = 1 << 20, 1 << 20, 1 << 63
_YEAR_10000 = 253_402_300_800


class OversizedError(DeepOpsError, ValueError):
    """A list that is longer than any that a node has a reason to send."""


def text(value: object) -> str:
    """The value as text, '' for none; what is too long is cut."""
    return "" if value is None else str(value)[:LONGEST_TEXT]


def number(value: object) -> int:
    """A whole number, also one that is written in digits; else 0."""
    return _number(value) or 0


def real(value: object) -> float:
    """A number; else 0."""
    return _real(value) or 0.0


def moment(value: object) -> datetime | None:
    """A time in seconds since 1970; None for none, and beyond the year 9999."""
    seconds = real(value)
    return datetime.fromtimestamp(seconds, UTC) if 0 < seconds < _YEAR_10000 else None


def items(value: object) -> Sequence[object]:
    """A list; else an empty one."""
    return _items(value) or ()


def texts(value: object) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(map(text, items(value)))


def mapping(value: object) -> Mapping[str, object]:
    """A mapping; else an empty one."""
    return _mapping(value) or {}


def words(value: object) -> dict[str, str]:
    """The texts of a mapping, by name."""
    return {text(name): text(word) for name, word in mapping(value).items()}


def mappings(value: object) -> list[Mapping[str, object]]:
    """The mappings of a list; other entries are ignored."""
    return [entry for entry in map(_mapping, items(value)) if entry is not None]


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of an answer, by name; one that is missing or of another type is empty."""

    values: Mapping[str, object]

    @classmethod
    def of(cls, answer: object) -> Self:
        """Of an answer that may be anything."""
        return cls(mapping(answer))

    def text(self, name: str) -> str:
        """A text."""
        return self._read(name, _text, "")

    def number(self, name: str) -> int:
        """A whole number."""
        return self._read(name, _number, 0)

    def real(self, name: str) -> float:
        """A number."""
        return self._read(name, _real, 0.0)

    def yes(self, name: str) -> bool:
        """Whether it is true."""
        return self.values.get(name) is True

    def items(self, name: str) -> Sequence[object]:
        """A list."""
        return self._read(name, _items, ())

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of a list."""
        return tuple(map(text, self.items(name)))

    def words(self, name: str) -> dict[str, str]:
        """The texts of a mapping, by name."""
        return words(self.part(name).values)

    def part(self, name: str) -> Self:
        """A mapping."""
        return type(self)(self._read(name, _mapping, {}))

    def parts(self, name: str) -> tuple[Self, ...]:
        """The mappings of a list."""
        return tuple(map(type(self), mappings(self.items(name))))

    def lists(self, name: str) -> dict[str, tuple[str, ...]]:
        """A mapping of lists of texts."""
        part = self.part(name)
        return {key: part.texts(key) for key in part.values}

    def members(self, name: str) -> Iterator[tuple[str, Fields]]:
        """The mappings of a mapping, by name; other values are ignored."""
        return members(self.part(name).values)

    def _read(self, name: str, convert: Callable[[object], T | None], empty: T) -> T:
        value = convert(self.values.get(name))
        return empty if value is None else value


def members(value: object) -> Iterator[tuple[str, Fields]]:
    """The mappings of a mapping, by name; other values are ignored."""
    for name, each in mapping(value).items():
        entry = _mapping(each)
        if entry is not None:
            yield text(name), Fields(entry)


class RequiredFields(Fields):
    """The same; one that is missing or of another type is a ValueError."""

    __slots__ = ()

    def yes(self, name: str) -> bool:
        """Whether it is true."""
        if name not in self.values:
            self._refuse(name)
        return self.values[name] is True

    def _read(self, name: str, convert: Callable[[object], T | None], _empty: T) -> T:
        value = convert(self.values.get(name))
        return self._refuse(name) if value is None else value

    def _refuse(self, name: str) -> NoReturn:
        raise ValueError(f"{name}: another type is expected than that of {self.values.get(name)!r:.60}")


def _text(value: object) -> str | None:
    return None if value is None else text(value)


def _number(value: object) -> int | None:
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        return _number(int(value))
    as_number = _numeric(value)
    return None if as_number is None else int(as_number)


def _real(value: object) -> float | None:
    as_number = _numeric(value)
    return None if as_number is None else float(as_number)


def _numeric(value: object) -> int | float | None:
    # nan is not less than anything
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    return value if fits and isinstance(value, int | float) else None


def _items(value: object) -> Sequence[object] | None:
    return _bounded(value) if isinstance(value, list | tuple) else None


def _mapping(value: object) -> Mapping[str, object] | None:
    return _bounded(value) if isinstance(value, Mapping) else None


C = TypeVar("C", Sequence[object], Mapping[str, object])


def _bounded(value: C) -> C:
    if len(value) > MOST_ENTRIES:
        raise OversizedError(
            f"an answer has a list of {len(value)} entries, more than {MOST_ENTRIES}",
            "no node has so many of anything: see what answers there",
        )
    return value
