"""Edits of people.yml that keep its comments and its formatting. Pure: text in, text out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date

import yaml

from deepopsctl.environment import values
from deepopsctl.environment.people import NAME, parse_people, read_people
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.people import People
from deepopsctl.text.answers import mapping, mappings, texts
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.sections import PersonSection
from deepopsctl.text.source import check_markers
from deepopsctl.text.values import suggest
from deepopsctl.text.yaml_editor import YamlText, items_of, value_of
from deepopsctl.text.yaml_reader import Document, Path, parse_yaml

NEW = "# The users of this cluster (docs/deploy/people.md). `deepopsctl people add` writes here as well.\nschema: 1\n"
# of a table; several groups, and several keys, of one person
COLUMNS = (*(name for name in PersonSection.model_fields if name != "keys"), "key")
_JOINED = "+"


def add(text: str, section: str, entry: Mapping[str, object], cluster: Cluster) -> str:
    """The text with one more of `people` or `groups`; without an id it gets the next free one."""
    people = parse_people(text, NAME, cluster)
    if entry["name"] in {*(person.name for person in people.people), *(group.name for group in people.groups)}:
        raise InputError.single(NAME, f"{entry['name']} is there already", "choose another name, or edit the file")
    return _with_entries(text, {section: [_with_id(entry, section, _Ids(people))]}, cluster)


def expire(text: str, names: Sequence[str], day: date, cluster: Cluster) -> str:
    """The text in which these people expire on a day."""
    people = parse_people(text, NAME, cluster)
    known = [person.name for person in people.people]
    for name in names:
        if name not in known:
            raise InputError.single(NAME, f"there is no {name}", suggest(name, known) if known else "see `people list`")
    source = YamlText.read(text)
    for person, item in zip(people.people, items_of(value_of(source.root, "people")), strict=True):
        if person.name in names and isinstance(item, yaml.MappingNode):
            source.set_keys(item, {"expires": day.isoformat()})
    changed = [replace(person, expires=day) if person.name in names else person for person in people.people]
    return _checked(source.result(), replace(people, people=tuple(changed)), cluster)


def give_ids(text: str, cluster: Cluster) -> str:
    """The text in which everybody without an id has the next free one."""
    problems = Problems()
    document = parse_yaml(text, NAME, problems)
    problems.raise_if_any()
    whole = mapping(document.value if document else None)
    entries = [item for section in ("groups", "people") for item in mappings(whole.get(section))]
    written = [str(item.get(key)) for item in entries for key in ("uid", "gid") if item.get(key)]
    taken = {int(number) for number in written if number.isdecimal()}
    # without the people, who have no ids yet
    rest = {key: item for key, item in whole.items() if key not in ("groups", "people")}
    people = read_people(replace(document, value=rest) if document else None, NAME, cluster, problems)
    ids = _Ids(people, taken)
    source = YamlText.read(text)
    for section, key in (("groups", "gid"), ("people", "uid")):
        for item in items_of(value_of(source.root, section)):
            if isinstance(item, yaml.MappingNode) and value_of(item, key) is None:
                source.set_keys(item, {key: ids.take()})
    result = source.result()
    parse_people(result, NAME, cluster)
    return result


def import_table(text: str, table: str, where: str, cluster: Cluster, *, new_groups: bool) -> tuple[str, list[str]]:
    """The text with everybody of a table (CSV with a header), and their names; groups are added if `new_groups`."""
    people = parse_people(text, NAME, cluster)
    problems = Problems()
    check_markers(table, where, problems)
    rows, lines = _rows(table, where, problems)
    problems.raise_if_any()
    # a row without an id gets none that another row has
    ids = _Ids(people, {int(number) for row in rows if (number := str(row.get("uid", ""))).isdecimal()})
    known = {group.name for group in people.groups}
    named = dict.fromkeys(group for row in rows for group in texts(row.get("groups")) if group not in known)
    groups = [_with_id({"name": name}, "groups", ids) for name in named] if new_groups else []
    entries = [_with_id(row, "people", ids) for row in rows]
    present = [{"name": group.name, "gid": str(group.gid)} for group in people.groups]
    content = {
        "schema": "1",
        "groups": [*present, *map(_as_text, groups)],
        "people": [_as_text(row) for row in entries],
    }
    places: dict[Path, int] = {("people", index): line for index, line in enumerate(lines)}
    taken_names = {person.name for person in people.people}
    for row, line in zip(rows, lines, strict=True):
        if row.get("name") in taken_names:
            problems.add(f"{where}:{line}", f"{row['name']} is in {NAME} already", "leave the line out")
    read_people(Document(content, places), where, cluster, problems)
    added = {"groups": groups, "people": entries}
    return _with_entries(text, {key: items for key, items in added.items() if items}, cluster), [
        str(row["name"]) for row in entries
    ]


def _rows(table: str, where: str, problems: Problems) -> tuple[list[dict[str, object]], list[int]]:
    """The rows with their lines; cells without content are left out."""
    reader = csv.reader(io.StringIO(table), strict=True)
    try:
        numbered = [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        problems.add(f"{where}:{reader.line_num}", f"not valid CSV: {error}", "check the quotes of this line")
        return [], []
    header = [cell.strip().lower() for cell in numbered[0][1]] if numbered else []
    unknown = [name for name in header if name not in COLUMNS]
    twice = [name for name in header if header.count(name) > 1]
    if unknown or twice or "name" not in header:
        known = f"has the column {twice[0]} twice" if twice else "has no column name"
        what = f"there is no column {unknown[0]!r}" if unknown else known
        problems.add(f"{where}:1", what, f"the first line names the columns: {', '.join(COLUMNS)}")
        return [], []
    rows, lines = [], []
    for line, cells in numbered[1:]:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) > len(header):
            hint = "quote cells that hold a comma"
            problems.add(f"{where}:{line}", f"has {len(cells)} cells, the header {len(header)}", hint)
        row: dict[str, object] = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
        if "groups" in row:
            row["groups"] = str(row["groups"]).split(_JOINED)
        if "key" in row:
            row["keys"] = [str(row.pop("key"))]
        rows.append(row)
        lines.append(line)
    return rows, lines


class _Ids:
    """Ids that are taken, and the free ones behind them: each is tried once, however many people there are."""

    def __init__(self, people: People, others: Iterable[int] = ()) -> None:
        self._taken = {*(group.gid for group in people.groups), *(person.uid for person in people.people), *others}
        self._free = values.free_ids(people.first_id, people.directory.ids if people.directory else range(0))

    def take(self) -> int:
        """The next free one."""
        try:
            return next(number for number in self._free if number not in self._taken)
        except RefusedError as refusal:
            raise InputError.single(NAME, refusal.message, refusal.hint) from refusal


def _with_id(entry: Mapping[str, object], section: str, ids: _Ids) -> dict[str, object]:
    """An entry with an id right behind its name."""
    key = "gid" if section == "groups" else "uid"
    number = str(entry.get(key) or "") or str(ids.take())
    others = {name: value for name, value in entry.items() if name not in ("name", key)}
    return {"name": entry.get("name", ""), key: int(number) if number.isdecimal() else number, **others}


def _with_entries(text: str, added: Mapping[str, Sequence[Mapping[str, object]]], cluster: Cluster) -> str:
    """The text with these entries at the end of their sections."""
    before = parse_people(text, NAME, cluster)
    source = YamlText.read(text)
    for section, entries in added.items():
        sequence = value_of(source.root, section)
        if isinstance(sequence, yaml.SequenceNode) and sequence.value:
            for entry in entries:
                source.insert_after(sequence, len(sequence.value) - 1, entry)
        else:
            source.set_keys(source.variables, {section: [dict(entry) for entry in entries]})
    result = source.result()
    after = parse_people(result, NAME, cluster)
    wanted = {
        "groups": {group.name for group in before.groups} | {str(entry["name"]) for entry in added.get("groups", ())},
        "people": {person.name for person in before.people} | {str(entry["name"]) for entry in added.get("people", ())},
    }
    kept = set(before.groups) <= set(after.groups) and set(before.people) <= set(after.people)
    names = {"groups": {group.name for group in after.groups}, "people": {person.name for person in after.people}}
    if not kept or names != wanted:
        raise _lost()
    return result


def _checked(text: str, wanted: People, cluster: Cluster) -> str:
    if parse_people(text, NAME, cluster) != wanted:
        raise _lost()
    return text


def _lost() -> DeepOpsError:
    message = f"this edit can't preserve the formatting of {NAME}: nothing was changed"
    return DeepOpsError(message, "make the edit manually, then run `deepopsctl inventory`")


def _as_text(row: Mapping[str, object]) -> dict[str, object]:
    """A row as YAML would be read: every scalar as text."""
    return {key: value if isinstance(value, list) else str(value) for key, value in row.items()}
