"""Strict YAML for node lists: strings with line numbers.

Values stay strings until the schema says what they are, so `NO` does not become false, nor `1:00:00` 3600. Aliases,
tags and deep nesting are refused as they are met: none of them may grow into memory or reach a constructor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.values import check_template

# str, None where empty, list or dict of such values: the schema narrows it
Value = object
Path = tuple[str | int, ...]

MAX_DEPTH = 12
_BROKEN_HINT = 'check indentation and brackets; between { and } a node set needs quotes: "gpu[01-16]"'
_TOO_DEEP = (f"nested more than {MAX_DEPTH} levels deep", "compare with the examples")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file and the line (from 1) of every value in it, by path."""

    value: Value
    lines: Mapping[Path, int]

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse_yaml(text: str, source: str, problems: Problems) -> Document | None:
    """Parse one YAML document; None where it can't be read (the problems say why)."""
    builder = _Builder(source, problems, yaml.parse(text, Loader=yaml.CSafeLoader))
    try:
        return Document(builder.document(), builder.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # at the end of a truncated file the parser points behind it
        line = min(mark.line + 1 if mark else 1, text.rstrip().count("\n") + 1)
        what = error.problem or error.context or "it ends too early"
        # libyaml has a limit of its own from PyYAML 6.0.4 on, met before the first value is read
        broken = _TOO_DEEP if "nesting depth" in what else why_broken(text, line, what, _BROKEN_HINT)
        problems.add(f"{source}:{line}", *broken)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.add(f"{source}:{line}", "not valid YAML: a control character", "remove it")
    except _StopReadingError as stop:
        problems.refuse(f"{source}:{stop.line}", "", stop)
    return None


def why_broken(text: str, line: int, what: str, hint: str) -> tuple[str, str]:
    """What is wrong with a line of YAML and what to do: the parser's message, except for tabs."""
    lines = text.split("\n")
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "not valid YAML: a tab indents this line", "indent by blanks: `expand` turns tabs into blanks"
    return f"not valid YAML: {what}", hint


def duplicate_keys(root: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    """Duplicate keys of any mapping of the file; aliased nodes are checked once."""
    todo, done = [root] if root is not None else [], set()
    while todo:
        node = todo.pop()
        if id(node) in done or isinstance(node, yaml.ScalarNode):
            continue
        done.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += reversed(node.value)
            continue
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            # merge keys may be many
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if (key.tag, key.value) in seen:
                    yield key
                seen.add((key.tag, key.value))
            todo.append(value)


def is_endless(root: yaml.Node, most: int = 1_000_000) -> bool:
    """Whether nested anchors expand to too many values ("billion laughs")."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode) or id(node) in sizes:
            return sizes.get(id(node), 1)
        # until it is known: reaching it again is a cycle
        sizes[id(node)] = most + 1
        items = node.value if isinstance(node, yaml.SequenceNode) else [item for pair in node.value for item in pair]
        sizes[id(node)] = min(1 + sum(map(size, items)), most + 1)
        return sizes[id(node)]

    try:
        return size(root) > most
    except RecursionError:
        return True


class AnyTagLoader(yaml.CSafeLoader):
    """Reads values with tags (`!vault`) as their text; its only errors are YAMLErrors, with their lines."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: FBT001, FBT002 - PyYAML's own
        """The value of a node."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            # `2026-02-30` looks like a date, `!!int x` claims to be a number
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


AnyTagLoader.add_multi_constructor("!", lambda _, suffix, node: (suffix, str(node.value)))


class PlainTagLoader(AnyTagLoader):
    """Reads values with tags (`!vault`, `!unsafe`) as plain text."""


PlainTagLoader.add_multi_constructor("!", lambda _loader, _suffix, node: str(node.value))


class _StopReadingError(RefusedError):
    """The rest of the document can't be read."""

    def __init__(self, line: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.line = line


class _Builder:
    """Turns parser events into plain values and notes their lines."""

    def __init__(self, source: str, problems: Problems, events: Iterator[yaml.Event]) -> None:
        self.source = source
        self.problems = problems
        self.events = events
        self.lines: dict[Path, int] = {}

    def document(self) -> Value:
        """The one document of the stream."""
        next(self.events)
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise _StopReadingError(1, "the file holds nothing but comments", "start with `schema: 1`")
        value = self._build(next(self.events), ())
        next(self.events)
        following = next(self.events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise _StopReadingError(
                _line(following), "a second YAML document begins here", "keep one document in a file"
            )
        return value

    def _build(self, event: yaml.Event, path: Path) -> Value:
        line = _line(event)
        self.lines[path] = line
        if len(path) > MAX_DEPTH:
            raise _StopReadingError(line, *_TOO_DEEP)
        if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) or event.anchor is not None:
            raise _StopReadingError(line, "anchors and aliases (&name, *name) are not used here", "write the value out")
        if event.tag not in (None, "!"):
            raise _StopReadingError(
                line, f"the tag {shorten(str(event.tag))} is not used here", "write the plain value"
            )
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        return self._mapping(path) if isinstance(event, yaml.MappingStartEvent) else self._sequence(path)

    def _sequence(self, path: Path) -> list[Value]:
        items: list[Value] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._build(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Value]:
        items: dict[str, Value] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            line = _line(event)
            key = self._build(event, (*path, "?"))
            if not isinstance(key, str):
                raise _StopReadingError(line, "a key is expected here, such as `names:`", "check braces and brackets")
            if key in items:
                self.problems.add(f"{self.source}:{line}", f"the key {shorten(key)} is given twice", "keep one of them")
            items[key] = self._build(next(self.events), (*path, key))
            self.lines[(*path, key)] = line
        return items

    def _scalar(self, event: yaml.ScalarEvent) -> str | None:
        text = str(event.value)
        try:
            check_template(text)
        except RefusedError as refusal:
            self.problems.refuse_line(f"{self.source}:{_line(event)}", refusal)
        is_plain = event.implicit[0]
        return None if is_plain and text in _NULL else text


def _line(event: yaml.Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark else 1
