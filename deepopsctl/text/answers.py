"""Untrusted values as typed ones: answers of nodes, documents of earlier runs, a site's variables.

Root of a compute node writes that node's answers. Types and sizes are looked at here and nowhere else: a value of
another type counts as missing, and a longer list or mapping is refused, since a part of it would pass for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self, TypeVar, cast

from deepopsctl.errors import DeepOpsError

T = TypeVar("T")
# more than any cluster has: characters of one text, entries of one list (jobs, for example), any counter
LONGEST_TEXT, MOST_ENTRIES, LARGEST = 1 << 20, 1 << 20, 1 << 63
_YEAR_10000 = 253_402_300_800
_NONE: Sequence[object] = ()


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


def listed(value: object) -> Sequence[object]:
    """A list; what is none is its only entry."""
    entries = _items(value)
    return [value] if entries is None else entries


def mapping(value: object) -> Mapping[str, object]:
    """A mapping; else an empty one."""
    return _mapping(value) or {}


def words(value: object) -> dict[str, str]:
    """The texts of a mapping, by name."""
    return {text(name): text(word) for name, word in mapping(value).items()}


def mappings(value: object) -> list[Mapping[str, object]]:
    """The mappings of a list; other entries are ignored."""
    return [entry for entry in map(_mapping, items(value)) if entry is not None]


def members(value: object) -> Iterator[tuple[str, Fields]]:
    """The mappings of a mapping, by name; other values are ignored."""
    named = ((text(name), _mapping(entry)) for name, entry in mapping(value).items())
    return ((name, Fields(entry)) for name, entry in named if entry is not None)


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
        return self._read(name, lambda value: None if value is None else value is True, empty=False)

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of a list."""
        return texts(self._read(name, _items, _NONE))

    def words(self, name: str) -> dict[str, str]:
        """The texts of a mapping, by name."""
        return words(self.part(name).values)

    def part(self, name: str) -> Self:
        """A mapping."""
        return type(self)(self._read(name, _mapping, {}))

    def parts(self, name: str) -> tuple[Self, ...]:
        """The mappings of a list."""
        return tuple(map(type(self), mappings(self._read(name, _items, _NONE))))

    def lists(self, name: str) -> dict[str, tuple[str, ...]]:
        """A mapping of lists of texts."""
        part = self.part(name)
        return {key: part.texts(key) for key in part.values}

    def members(self, name: str) -> Iterator[tuple[str, Fields]]:
        """The mappings of a mapping, by name; other values are ignored."""
        return members(self.part(name).values)

    def fill(self, of: Callable[..., T], **known: object) -> T:
        """A dataclass, with the values under its fields' names and of their types, but those that are `known`."""
        every = fields(cast(Any, of))
        types = {field.name: str(field.type) for field in every if field.name not in known}
        return of(**known, **{name: _READERS[kind](self, name) for name, kind in types.items()})

    def fill_each(self, name: str, of: Callable[..., T]) -> tuple[T, ...]:
        """One for each mapping of a list."""
        return tuple(each.fill(of) for each in self.parts(name))

    def _read(self, name: str, convert: Callable[[object], T | None], empty: T) -> T:
        value = convert(self.values.get(name))
        return empty if value is None else value


class RequiredFields(Fields):
    """The same; one that is missing or of another type is a ValueError."""

    __slots__ = ()

    def _read(self, name: str, convert: Callable[[object], T | None], empty: T) -> T:
        value = convert(self.values.get(name))
        if value is None:
            raise ValueError(f"{name}: {type(empty).__name__} is expected, not {self.values.get(name)!r:.60}")
        return value


_READERS: Mapping[str, Callable[[Fields, str], object]] = {
    "str": Fields.text, "int": Fields.number, "float": Fields.real, "bool": Fields.yes,
    "tuple[str, ...]": Fields.texts, "Mapping[str, str]": Fields.words,
    "Mapping[str, tuple[str, ...]]": Fields.lists,
    "Mapping[str, object]": lambda answer, name: answer.part(name).values,
    "tuple[Mapping[str, object], ...]": lambda answer, name: tuple(part.values for part in answer.parts(name)),
}  # fmt: skip


def _text(value: object) -> str | None:
    return None if value is None else text(value)


def _number(value: object) -> int | None:
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        return _number(int(value))
    numeric = _numeric(value)
    return None if numeric is None else int(numeric)


def _real(value: object) -> float | None:
    numeric = _numeric(value)
    return None if numeric is None else float(numeric)


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
