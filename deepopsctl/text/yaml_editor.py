"""Changes single places of a YAML text; comments, order, quotes and line ends stay.

Works on the positions of YAML's nodes in the text. Why: docs/develop/decisions/yaml-editor.md.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import yaml

from deepopsctl.errors import InputError
from deepopsctl.text import yaml_writer
from deepopsctl.text.yaml_reader import AnyTagLoader

_INTRO = "\n# Taken from the node list that this cluster was made from; edit it as you like.\n"


def with_settings(text: str, wanted: Mapping[str, object], where: str = "settings.yml") -> str:
    """The text of settings.yml with these variables set; mappings are merged key by key, in any case of their keys."""
    if not wanted:
        return text
    try:
        present = yaml.load(text, AnyTagLoader)  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        raise InputError.single(where, "is not valid YAML", "correct it, or restore it from git") from error
    if not present:
        return f"{text.rstrip()}\n{_INTRO}{_lines(wanted)}"
    if not isinstance(present, dict):
        raise InputError.single(where, "holds no variables", "it needs lines of `name: value`")
    merged = _merged(present, wanted)
    if merged == present:
        return text
    with suppress(yaml.YAMLError, ValueError):
        result = _set_variables(text, wanted)
        if yaml.load(result, AnyTagLoader) == merged:  # noqa: S506 (a safe loader)
            return result
    hint = f"set them manually:\n{_lines(wanted).rstrip()}"
    raise InputError.single(where, f"{', '.join(wanted)} can't be set in it", hint)


@dataclass(slots=True)
class YamlText:
    """A text with its nodes, and the edits to be made in it; `result` makes them all at once."""

    text: str
    root: yaml.Node
    _dashes: list[int]
    _commas: list[int]
    _edits: list[tuple[int, int, str]] = field(default_factory=list)
    _appended: str = ""

    @classmethod
    def read(cls, text: str) -> YamlText:
        """Parse a valid text."""
        # not the C loader: its positions count bytes
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ValueError("there is nothing in it")
        tokens = list(yaml.scan(text, Loader=yaml.SafeLoader))
        dashes = [_index(token.start_mark) for token in tokens if isinstance(token, yaml.BlockEntryToken)]
        commas = [_index(token.start_mark) for token in tokens if isinstance(token, yaml.FlowEntryToken)]
        return cls(text, root, dashes, commas)

    @property
    def variables(self) -> yaml.MappingNode:
        """The outermost mapping."""
        if not isinstance(self.root, yaml.MappingNode):
            raise TypeError("it is not a mapping")
        return self.root

    def result(self) -> str:
        """The text with all edits made."""
        text = self.text
        for start, end, new in sorted(self._edits, reverse=True):
            text = text[:start] + new + text[end:]
        appended = self._appended.replace("\n", self._line_end)
        # nothing may follow a marker of the document's end
        body = text.rstrip().removesuffix("\n...").rstrip()
        return f"{body}{self._line_end}{appended}" if appended else text

    def set_scalar(self, node: yaml.ScalarNode, value: str, *, in_flow: bool) -> None:
        """Replace the value of a scalar; its quotes stay where the value allows."""
        start, end = _index(node.start_mark), _index(node.end_mark)
        if node.style in ("|", ">"):
            self._edits.append((start, end, json.dumps(value, ensure_ascii=False) + self._line_end))
        else:
            self._edits.append((start, end, _scalar(value, node.style, in_flow=in_flow)))

    def set_keys(self, mapping: yaml.MappingNode, values: Mapping[str, object]) -> None:
        """Set keys of a mapping: known ones where they stand, new ones behind the others."""
        pairs = mapping.value
        known = {name.value: (name, value) for name, value in pairs}
        for key in values.keys() & known.keys():
            self._set_value(*known[key], values[key])
        new = {key: value for key, value in values.items() if key not in known}
        if not new:
            return
        if mapping is self.root and not mapping.flow_style:
            self._appended += _lines(new)
            return
        last = _real_end(pairs[-1][1]) if pairs else _index(mapping.start_mark) + 1
        parts = [f"{yaml_writer.scalar(key)}: {_inline(value)}" for key, value in new.items()]
        if mapping.flow_style:
            self._edits.append((last, last, (", " if pairs else "") + ", ".join(parts)))
            return
        place, indent = self._next_line(last), " " * pairs[0][0].start_mark.column
        before = "" if self.text[:place].endswith("\n") else self._line_end
        lines = "".join(f"{indent}{part}{self._line_end}" for part in parts)
        self._edits.append((place, place, before + lines))

    def _set_value(self, name: yaml.ScalarNode, old: yaml.Node, value: object) -> None:
        start, end = _index(name.end_mark), _real_end(old)
        if end < start:
            raise ValueError(f"{name.value} is an alias")
        if isinstance(old, yaml.ScalarNode) and old.style in ("'", '"') and isinstance(value, str):
            self._edits.append((_index(old.start_mark), end, _scalar(value, old.style, in_flow=False)))
            return
        whole_lines = self.text[start:end].endswith("\n")
        text = f": {_inline(value)}"
        if isinstance(value, Mapping) and value and not name.start_mark.column:
            text = _lines({"": value}).rstrip().removeprefix('""').replace("\n", self._line_end)
        self._edits.append((start, end, text + (self._line_end if whole_lines else "")))

    def remove_items(self, collection: yaml.CollectionNode, gone: Collection[int]) -> None:
        """Remove items of a sequence or pairs of a mapping, with their lines if nothing else is on them."""
        pairs = [item if isinstance(item, tuple) else (item, item) for item in collection.value]
        spans = [(_index(first.start_mark), _real_end(last)) for first, last in pairs]
        if not collection.flow_style:
            for start, end in (spans[index] for index in gone):
                place = self._dash_at(start) if isinstance(collection, yaml.SequenceNode) else start
                self._edits.append((self._line_start(place), self._next_line(end), ""))
            return
        last = spans[-1][1]
        ends_with_comma = self.text[last:].lstrip()[:1] == ","
        # those after the last one that stays go together, with the comma before them
        tail = len(spans) if ends_with_comma else max(set(range(len(spans))) - set(gone), default=-1) + 1
        for start, end in (spans[index] for index in gone if index < tail):
            self._remove_with_comma(start, end)
        if tail < len(spans):
            start = spans[tail][0]
            start = self._commas[bisect.bisect_left(self._commas, start) - 1] if tail else start
            self._edits.append((start, last, ""))

    def _remove_with_comma(self, start: int, end: int) -> None:
        end = self._commas[bisect.bisect_left(self._commas, end)] + 1
        end += len(self.text[end:]) - len(self.text[end:].lstrip(" \t"))
        line, after = self._line_start(start), self._next_line(end)
        if not self.text[line:start].strip() and self._is_blank(end, after):
            start, end = line, after
        self._edits.append((start, end, ""))

    def remove_key(self, key: str) -> None:
        """Remove a key of the outermost mapping, with its lines; no change without the key."""
        for name, value in self.root.value if isinstance(self.root, yaml.MappingNode) else ():
            if name.value == key:
                start = self._line_start(_index(name.start_mark))
                self._edits.append((start, self._next_line(max(_index(name.end_mark), _real_end(value))), ""))

    def insert_after(self, sequence: yaml.SequenceNode, index: int, entry: Mapping[str, object]) -> None:
        """Insert a mapping after an item, in that item's style."""
        item = sequence.value[index]
        if sequence.flow_style:
            end, column = _index(item.end_mark), item.start_mark.column
            start = self._line_start(_index(item.start_mark))
            alone = not self.text[start : _index(item.start_mark)].strip()
            glue = f",{self._line_end}{' ' * column}" if alone and start else ", "
            self._edits.append((end, end, glue + _flow_like(item, entry)))
            return
        dash, place = self._dash_at(_index(item.start_mark)), self._next_line(_real_end(item))
        indent = self.text[self._line_start(dash) : dash]
        if isinstance(item, yaml.MappingNode) and not item.flow_style:
            parts = [f"{yaml_writer.scalar(key)}: {yaml_writer.flow(value)}" for key, value in entry.items()]
            body = (self._line_end + indent + "  ").join(parts)
        else:
            body = _flow_like(item, entry)
        before = "" if self.text[:place].endswith(("\n", "\r")) else self._line_end
        after = self._line_end if not before else ""
        self._edits.append((place, place, f"{before}{indent}- {body}{after}"))

    @property
    def _line_end(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def _dash_at(self, index: int) -> int:
        """The dash of the item that begins there."""
        return self._dashes[bisect.bisect_left(self._dashes, index) - 1]

    def _line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def _next_line(self, index: int) -> int:
        """Where the line after the one of this index begins; a block scalar ends there already."""
        if index and self.text[index - 1] == "\n":
            return index
        newline = self.text.find("\n", index)
        return len(self.text) if newline < 0 else newline + 1

    def _is_blank(self, start: int, end: int) -> bool:
        """Whether there is nothing but a comment."""
        return not self.text[start:end].partition("#")[0].strip()


def value_of(mapping: yaml.Node, key: str) -> yaml.Node | None:
    """The value of a key, None where the mapping lacks it or has nothing there."""
    if not isinstance(mapping, yaml.MappingNode):
        return None
    for name, value in mapping.value:
        if name.value == key:
            return None if isinstance(value, yaml.ScalarNode) and not value.value else value
    return None


def items_of(node: yaml.Node | None) -> Sequence[yaml.Node]:
    """The items of a sequence, none where it is none."""
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _set_variables(text: str, wanted: Mapping[str, object]) -> str:
    document = YamlText.read(text)
    replaced: dict[str, object] = {}
    for name, value in wanted.items():
        old = value_of(document.root, name)
        if isinstance(old, yaml.MappingNode) and isinstance(value, Mapping):
            document.set_keys(old, _spelt_like([str(key.value) for key, _ in old.value], value))
        else:
            replaced[name] = value
    document.set_keys(document.variables, replaced)
    return document.result()


def _merged(present: Mapping[str, object], wanted: Mapping[str, object]) -> dict[str, object]:
    """Variables overridden by others; mappings merge one level deep, ignoring the case of keys."""
    variables = dict(present)
    for name, value in wanted.items():
        old = variables.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            variables[name] = {**old, **_spelt_like(old, value)}
        else:
            variables[name] = value
    return variables


def _spelt_like(known: Iterable[object], values: Mapping[str, object]) -> dict[str, object]:
    """The values with the keys that are known in another case, as they are known."""
    spelling = {str(key).lower(): str(key) for key in known}
    return {spelling.get(key.lower()) or key: value for key, value in values.items()}


def _lines(values: Mapping[str, object]) -> str:
    """Variables in block style, with one key a line: people edit them."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            lines.append(f"{yaml_writer.scalar(name)}:\n")
            lines += [f"  {yaml_writer.scalar(key)}: {_inline(item)}\n" for key, item in value.items()]
        else:
            lines.append(yaml_writer.block({name: value}))
    return "".join(lines)


def _inline(value: object) -> str:
    return "null" if value is None else yaml_writer.flow(value)


def _flow_like(item: yaml.Node, entry: Mapping[str, object]) -> str:
    """A mapping on one line; with its keys in quotes where the item has them so (JSON is YAML)."""
    quoted = isinstance(item, yaml.MappingNode) and any(key.style == '"' for key, _ in item.value)
    return json.dumps(entry, ensure_ascii=False) if quoted else yaml_writer.flow(entry)


def _scalar(value: str, style: str | None, *, in_flow: bool) -> str:
    if style == "'":
        return "'" + value.replace("'", "''") + "'"
    if style is None and _is_plain(value, in_flow=in_flow):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: str, *, in_flow: bool) -> bool:
    """Whether YAML reads it back as this very string without quotes."""
    try:
        node = yaml.compose(f"[{value}]" if in_flow else f"- {value}", Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return False
    items = items_of(node)
    return len(items) == 1 and isinstance(items[0], yaml.ScalarNode) and items[0].value == value


def _real_end(node: yaml.Node) -> int:
    """Where a node's last character stands; YAML counts the comments that follow a block as part of it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return _index(node.end_mark)
    last = node.value[-1]
    return _real_end(last[1] if isinstance(last, tuple) else last)


def _index(mark: yaml.Mark) -> int:
    return int(mark.index)
