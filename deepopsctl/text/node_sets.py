"""Node expressions (`gpu[01-16],ctl1`): expand, fold and pair them. The only user of ClusterShell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from deepopsctl.text.amounts import amount
from deepopsctl.text.problems import RefusedError

# Checked before an expression is expanded, to limit memory.
MAX_EXPRESSION = 100_000

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15})(?:/([0-9]{1,6}))?)?")
_LITERAL = re.compile(r"[A-Za-z0-9._:-]*")
_PREFIX_LENGTH = re.compile(r"(?=[^/]*[.:])[0-9A-Fa-f.:\[\],-]+/[0-9]{1,3}")
_MAX_DIGITS = 15
_DIGITS = re.compile(r"([0-9]+)")


def expand(text: str) -> tuple[str, ...]:
    """Every name of an expression, in the order written; a RefusedError where it is malformed."""
    if _LITERAL.fullmatch(text) and text:
        return (text,)
    pieces = [_Piece.parse(piece) for piece in _split(text)]
    total = sum(piece.size for piece in pieces)
    if total > MAX_EXPRESSION:
        raise RefusedError(
            f"{shorten(text)} stands for {total:,} names, more than {MAX_EXPRESSION:,}",
            "check the ends of the range",
        )
    return tuple(name for piece in pieces for name in piece.names())


def pair(names: str, addresses: str) -> tuple[tuple[str, str], ...]:
    """Names with their addresses, first with first; both expressions must have the same length."""
    left, right = expand(names), expand(addresses)
    if len(left) != len(right):
        raise RefusedError(
            f"{shorten(names)} stands for {amount(len(left), 'name')} and {shorten(addresses)} for "
            f"{amount(len(right), 'address', 'addresses')}",
            "give exactly one address for each name",
        )
    return tuple(zip(left, right, strict=True))


def fold(names: Iterable[str]) -> str:
    """The shortest sorted expression for a set of names, as Slurm reads it (no `/step`)."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    # ranges parse thirty times faster than single names; RESOLVER_NOGROUP, because @x and * would run group commands
    nodes = NodeSet(fold_in_order(names), resolver=RESOLVER_NOGROUP)
    # fold one axis only: more take minutes for a large cluster
    nodes.fold_axis = (-1,)
    return str(nodes)


def fold_in_order(names: Iterable[str]) -> str:
    """An expression that `expand` turns back into exactly these names in exactly this order."""
    folded = _Folded()
    for name in names:
        folded.add(name)
    return folded.text()


def fold_pairs(pairs: Iterable[tuple[str, str]], most: int) -> Iterator[tuple[str, str]]:
    """Names and addresses folded in order, in as few entries as have at most `most` ranges each."""
    names, addresses = _Folded(), _Folded()
    for name, address in pairs:
        if max(names.ranges, addresses.ranges) >= most and not (names.fits(name) and addresses.fits(address)):
            yield names.text(), addresses.text()
            names, addresses = _Folded(), _Folded()
        names.add(name)
        addresses.add(address)
    if names.ranges:
        yield names.text(), addresses.text()


def shorten(text: str, width: int = 60) -> str:
    """The text as it may be quoted in a message: one line, not too long."""
    # no control characters to the terminal
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return line if len(line) <= width else f"{line[: width - 3]}..."


def prefixed(text: str) -> RefusedError:
    """For `10.0.0.1/24` where a node's address belongs."""
    address = text.rpartition("/")[0]
    return RefusedError(f"{shorten(text)} has the length of a network prefix", f"write the address alone: {address}")


def is_prefixed(text: str) -> bool:
    """Whether this is an address with a network's prefix length."""
    return _PREFIX_LENGTH.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Piece:
    """One comma-separated part of an expression: literal text between groups of ranges."""

    literals: tuple[str, ...]
    groups: tuple[tuple[range, ...], ...]
    widths: tuple[tuple[int, ...], ...]

    @classmethod
    def parse(cls, text: str) -> _Piece:
        parts = _BRACKETS.split(text)
        literals, groups = parts[0::2], parts[1::2]
        for literal in literals:
            _check_literal(literal, text)
        parsed = [[_parse_range(element, text) for element in group.split(",")] for group in groups]
        return cls(
            tuple(literals),
            tuple(tuple(numbers for numbers, _ in group) for group in parsed),
            tuple(tuple(width for _, width in group) for group in parsed),
        )

    @property
    def size(self) -> int:
        size = 1
        for group in self.groups:
            # len() of a range above sys.maxsize fails: the pattern keeps numbers to 15 digits
            size *= sum(len(numbers) for numbers in group)
        return size

    def names(self) -> Iterator[str]:
        columns = [
            [f"{number:0{width}d}" for numbers, width in zip(group, widths, strict=True) for number in numbers]
            for group, widths in zip(self.groups, self.widths, strict=True)
        ]
        for combination in product(*columns):
            yield self.literals[0] + "".join(
                number + literal for number, literal in zip(combination, self.literals[1:], strict=True)
            )


class _Folded:
    """Names folded one after the other, in order."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.ranges = 0

    def fits(self, name: str) -> bool:
        """Whether the name only lengthens the last range."""
        return bool(self.runs) and self.runs[-1].place(_DIGITS.split(name)) == "next"

    def add(self, name: str) -> None:
        tokens = _DIGITS.split(name)
        place = self.runs[-1].place(tokens) if self.runs else ""
        if place:
            self.runs[-1].add(tokens, place)
        else:
            self.runs.append(_Run(tokens))
        self.ranges += place != "next"

    def text(self) -> str:
        return ",".join(run.text() for run in self.runs)


@dataclass(slots=True)
class _Run:
    """Names in a row that differ in one growing number; `tokens` has text and numbers in turn."""

    tokens: list[str]
    axis: int = 0
    bounds: list[list[str]] = field(default_factory=list)

    def place(self, tokens: Sequence[str]) -> str:
        """Where the name belongs: `next` in the last range, `new` range, or '' for not in this run."""
        axis = self._axis_to(tokens)
        if not axis:
            return ""
        last, number = (self.bounds[-1][1] if self.bounds else self.tokens[axis]), tokens[axis]
        if len(last) > _MAX_DIGITS or len(number) > _MAX_DIGITS or int(number) <= int(last):
            return ""
        # a range has the padding of its first number: 01 to 99, but never 01 to 100
        first = self.bounds[-1][0] if self.bounds else last
        same_padding = len(first) == len(number) or not (_is_padded(first) or _is_padded(number))
        return "next" if same_padding and int(number) == int(last) + 1 else "new"

    def add(self, tokens: Sequence[str], place: str) -> None:
        if not self.bounds:
            self.axis = self._axis_to(tokens)
            self.bounds = [[self.tokens[self.axis], self.tokens[self.axis]]]
        number = tokens[self.axis]
        if place == "next":
            self.bounds[-1][1] = number
        else:
            self.bounds.append([number, number])

    def text(self) -> str:
        if not self.bounds:
            return "".join(self.tokens)
        body = ",".join(first if first == last else f"{first}-{last}" for first, last in self.bounds)
        return "".join([*self.tokens[: self.axis], f"[{body}]", *self.tokens[self.axis + 1 :]])

    def _axis_to(self, tokens: Sequence[str]) -> int:
        """The index of the one number in which a name differs from this run; 0 for none or several."""
        if len(tokens) != len(self.tokens):
            return 0
        if self.axis:
            same = tokens[: self.axis] == self.tokens[: self.axis]
            return self.axis if same and tokens[self.axis + 1 :] == self.tokens[self.axis + 1 :] else 0
        axes = [index for index, (a, b) in enumerate(zip(self.tokens, tokens, strict=True)) if a != b]
        return axes[0] if len(axes) == 1 and axes[0] % 2 else 0


def _is_padded(number: str) -> bool:
    return len(number) > 1 and number[0] == "0"


def _split(text: str) -> list[str]:
    """Parts between the commas that stand outside brackets."""
    if not text.strip():
        raise RefusedError("no names are given", "write names such as gpu[01-16] or ctl1,ctl2")
    for marker in "@*?":
        if marker in text:
            raise RefusedError(
                f"{shorten(text)}: groups (@) and wildcards (*, ?) are not looked up",
                "write the names out: gpu[01-16]",
            )
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        if depth not in (0, 1):
            raise RefusedError(f"{shorten(text)}: brackets do not match", "write ranges as gpu[01-04,07]")
    if depth:
        raise RefusedError(f"{shorten(text)}: a bracket is not closed", "write ranges as gpu[01-04,07]")
    return [part.strip() for part in [*parts, text[start:]]]


def _check_literal(literal: str, text: str) -> None:
    if not text:
        raise RefusedError("has an empty part between commas", "remove the comma that is too many")
    match = _LITERAL.match(literal)
    rest = literal[match.end() :] if match else literal
    if is_prefixed(text):
        raise prefixed(text)
    if rest:
        hint = "separate names by commas" if rest[0].isspace() else "names have letters, digits and hyphens"
        raise RefusedError(f"{shorten(text)}: {rest[0]!r} can't be part of a node expression", hint)


def _parse_range(element: str, text: str) -> tuple[range, int]:
    match = _RANGE.fullmatch(element.strip())
    if not match:
        raise RefusedError(f"{shorten(text)}: {shorten(element)!r} is not a valid range", "write ranges as [01-04,07]")
    first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
    if int(last) < int(first):
        raise RefusedError(f"{shorten(text)}: the range {element} runs backwards", f"write {last}-{first}")
    padded = (first[0] == "0" and first != "0") or (last[0] == "0" and last != "0")
    if padded and len(first) != len(last):
        raise RefusedError(
            f"{shorten(text)}: the ends of {element} differ in their number of digits",
            f"write {first.zfill(len(last))}-{last.zfill(len(first))}{_as_in_slurm(first, last)}",
        )
    if step == 0:
        raise RefusedError(f"{shorten(text)}: {element} has a step of 0", "leave the step out")
    return range(int(first), int(last) + 1, step), len(first) if len(first) == len(last) else 1


def _as_in_slurm(first: str, last: str) -> str:
    """Slurm prints node08 to node100 as node[08-100]."""
    if not len(last) > len(first) > 1:
        return ""
    return f", or if the numbers are {first} and {last}: {wider(first, last)}"


def wider(first: str, last: str) -> str:
    """A range whose numbers get more digits, as two: Slurm's 08-100 is 08-99,100-100."""
    return f"{first}-{'9' * len(first)},1{'0' * len(first)}-{last}"
