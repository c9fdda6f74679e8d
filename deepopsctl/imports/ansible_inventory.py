"""An Ansible inventory in INI or YAML form, with its group_vars, as Ansible's own plugins read it.

Not by those plugins: they stop at the first error, know no line of a host or variable, and expand ranges of any length.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import yaml

from deepopsctl.cluster.builder import MAX_NODES
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.text.node_sets import MAX_EXPRESSION, shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.source import is_alongside, read_source
from deepopsctl.text.yaml_reader import why_broken

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_PORT = re.compile(r"(.*[^:]):([0-9]{1,5})")

_MAX_GROUP_DEPTH = 50
_HINT = "a group has hosts:, children: and vars:, each a mapping"

_SUFFIXES = (".yml", ".yaml", "")
_MAX_DEPTH = 20

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"([0-9]{1,9}):([0-9]{1,9})(?::([0-9]{1,6}))?")
_LETTERS = re.compile(r"([a-z]):([a-z])(?::([0-9]{1,2}))?|([A-Z]):([A-Z])(?::([0-9]{1,2}))?")
_SUBSCRIPT = re.compile(r"(.+)\[(-?[0-9]{0,6})(:)?(-?[0-9]{0,6})\]")


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable's value and its location."""

    value: object
    where: str


@dataclass(slots=True)
class Inventory:
    """A parsed inventory; hosts in the order in which they first appear."""

    hosts: dict[str, str] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    group_vars: dict[str, dict[str, Setting]] = field(default_factory=dict)
    host_vars: dict[str, dict[str, Setting]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Hosts by group, including children; cycles are followed once."""
        return {name: tuple(dict.fromkeys(self._hosts_of(name, set()))) for name in self._names()}

    def by_precedence(self) -> list[str]:
        """All groups in Ansible's order: variables of children override those of parents, else the alphabet decides."""
        depth = {name: int(name != "all") for name in self._names()}
        edges = [(parent, child) for parent, many in self.children.items() for child in many]
        # a pass for each level: a cycle would continue
        for _ in depth:
            before = dict(depth)
            for parent, child in edges:
                depth[child] = max(depth[child], depth[parent] + 1)
            if depth == before:
                break
        return sorted(depth, key=lambda name: (depth[name], name))

    def _names(self) -> list[str]:
        return list(
            dict.fromkeys([*self.members, *self.children, *(c for many in self.children.values() for c in many)])
        )

    def _hosts_of(self, group: str, seen: set[str]) -> list[str]:
        if group in seen or len(seen) > 200:
            return []
        seen.add(group)
        hosts = list(self.members.get(group, ()))
        for child in self.children.get(group, ()):
            hosts += self._hosts_of(child, seen)
        return hosts


def parse_ini(text: str, source: str, problems: Problems) -> Inventory:
    """The inventory in a text; every line that can't be read is a problem."""
    inventory, section, section_type = Inventory(), "ungrouped", "hosts"
    for number, raw in enumerate(text.split("\n"), start=1):
        line, where = raw.strip(), f"{source}:{number}"
        if not line or line[0] in "#;":
            continue
        header = _SECTION.fullmatch(line)
        try:
            if header:
                section, section_type = _begin(header, where, inventory)
            elif section_type == "vars":
                _read_variable(line, where, inventory.group_vars.setdefault(section, {}))
            elif section_type == "children":
                inventory.children[section].append(line.split("#")[0].strip())
            else:
                _read_host(line, where, section, inventory)
        except RefusedError as refusal:
            problems.refuse(where, "", refusal)
            if len(inventory.hosts) > MAX_NODES:
                break
    return inventory


def as_text(value: object) -> str:
    """A variable's value as one word; booleans as YAML writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def layered(*layers: Mapping[str, Setting]) -> dict[str, Setting]:
    """The variables of several layers; later ones override earlier ones."""
    merged: dict[str, Setting] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def parse_yaml_inventory(text: str, source: str, problems: Problems) -> Inventory:
    """The inventory in a text; every part that can't be read is a problem."""
    inventory = Inventory()
    try:
        root = _composed(text)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problems.add(f"{source}{line}", f"not valid YAML: {error.problem or error.context}", "compare it with Ansible")
        return inventory
    except (yaml.YAMLError, RecursionError):
        problems.add(source, "not valid YAML", "compare it with `ansible-inventory --list`")
        return inventory
    reader = _Reader(source, problems, inventory)
    for name, where, node in reader.pairs(root, source):
        reader.group(name, where, node, 0)
    return inventory


class Opaque:
    """A value that only Ansible can resolve: a vault string or another tag."""


def read_variables(directory: Path, name: str, carryover: Carryover, problems: Problems) -> dict[str, Setting]:
    """The variables of `name` (a group or host) in a group_vars or host_vars directory; later files win."""
    variables: dict[str, Setting] = {}
    for path in _files(directory, name):
        if not is_alongside(path, directory):
            carryover.leave(path.name, str(path), "it is a link out of the inventory", "copy the file itself there")
            continue
        text = read_source(path, str(path), Problems())
        if text is None:
            if path.stat().st_size:
                read_source(path, str(path), problems)
        elif text.startswith("$ANSIBLE_VAULT"):
            hint = "decrypt a copy (ansible-vault decrypt) and import that, or set its variables manually"
            carryover.leave(path.name, str(path), "it is encrypted by ansible-vault", hint)
        else:
            variables.update(_variables(text, str(path), problems))
    return variables


def variables_of(node: yaml.Node, source: str) -> dict[str, Setting]:
    """The variables of a mapping, with their lines; empty for other nodes."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {
        str(key.value): Setting(_plain(value, 0), f"{source}:{key.start_mark.line + 1}")
        for key, value in node.value
        if isinstance(key, yaml.ScalarNode)
    }


def expand_hosts(text: str) -> list[str]:
    """Every host of an inventory line: `gpu[01:16]`, `rack[a:c]n[1:9:2]`."""
    pieces = _RANGE.split(text)
    columns = [_values(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    size = 1
    for column in columns:
        size *= len(column)
    if size > MAX_EXPRESSION:
        raise RefusedError(f"{shorten(text)} stands for {size:,} hosts", "check the ends of the range")
    return ["".join(parts) for parts in product(*columns)]


def match_hosts(pattern: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> list[str]:
    """The hosts of a pattern such as `slurm-master[1:],slurm-node`; unknown names give none."""
    matches: list[str] = []
    for part in re.split(r"[,:](?![^\[]*\])", pattern):
        word = part.strip()
        mine = _match_one(word.lstrip("!&"), groups, hosts)
        if word.startswith("!"):
            matches = [host for host in matches if host not in mine]
        elif word.startswith("&"):
            matches = [host for host in matches if host in mine]
        else:
            matches += mine
    return list(dict.fromkeys(matches))


def _begin(header: re.Match[str], where: str, inventory: Inventory) -> tuple[str, str]:
    section, section_type = header[1], header[2] or "hosts"
    if section_type not in ("hosts", "vars", "children"):
        raise RefusedError(
            f"[{section}:{section_type}] is not a section", "use [GROUP], [GROUP:vars], [GROUP:children]"
        )
    inventory.where.setdefault(section, where)
    (inventory.members if section_type == "hosts" else inventory.children).setdefault(section, [])
    return section, section_type


def _read_variable(line: str, where: str, into: dict[str, Setting]) -> None:
    key, equals, value = line.partition("=")
    if not equals or not re.fullmatch(r"\s*[A-Za-z_][A-Za-z0-9_]*\s*", key):
        raise RefusedError(
            f"{shorten(line)!r} is not a VARIABLE=VALUE", "under [GROUP:vars] every line sets a variable"
        )
    into[key.strip()] = Setting(_literal(_uncomment(value.strip())), where)


def _read_host(line: str, where: str, section: str, inventory: Inventory) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise RefusedError(f"{shorten(line)}: a quote is not closed", "close it") from error
    if not words:
        return
    port = _PORT.fullmatch(words[0]) if "[" not in words[0] else None
    settings = {"ansible_port": Setting(port[2], where)} if port else {}
    for word in words[1:]:
        _read_variable(word, where, settings)
    for host in expand_hosts(port[1] if port else words[0]):
        inventory.hosts.setdefault(host, where)
        inventory.members.setdefault(section, []).append(host)
        inventory.host_vars.setdefault(host, {}).update(settings)
    if len(inventory.hosts) > MAX_NODES:
        raise RefusedError(f"more than {MAX_NODES:,} nodes in total", "check the ends of the ranges")


def _uncomment(value: str) -> str:
    return re.sub(r"\s+#.*$", "", value)


def _literal(text: str) -> object:
    """Ansible reads values as Python literals, else as text."""
    if len(text) > 1000:
        return text
    try:
        with warnings.catch_warnings():
            # Python warns about text that looks like code
            warnings.simplefilter("ignore")
            value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text
    return value if isinstance(value, str | int | float | bool | list | dict | None) else text


class _Reader:
    def __init__(self, source: str, problems: Problems, inventory: Inventory) -> None:
        self.source = source
        self.problems = problems
        self.inventory = inventory

    def pairs(self, node: yaml.Node | None, where: str) -> Iterator[tuple[str, str, yaml.Node]]:
        """The keys of a mapping with their locations and values; empty for an empty value."""
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    yield str(key.value), f"{self.source}:{key.start_mark.line + 1}", value
        elif not isinstance(node, yaml.ScalarNode) or node.value:
            self.problems.add(where, "is not a mapping", _HINT)

    def group(self, name: str, where: str, node: yaml.Node, depth: int) -> None:
        """One group with all that is below it."""
        if depth > _MAX_GROUP_DEPTH:
            self.problems.add(where, "groups are nested too deep", _HINT)
            return
        self.inventory.where.setdefault(name, where)
        self.inventory.members.setdefault(name, [])
        for key, place, value in self.pairs(node, where):
            if key == "hosts":
                for host, line, content in self.pairs(value, place):
                    self._hosts(name, host, line, content)
            elif key == "children":
                for child, line, content in self.pairs(value, place):
                    self.inventory.children.setdefault(name, []).append(child)
                    self.group(child, line, content, depth + 1)
            elif key == "vars":
                self.inventory.group_vars.setdefault(name, {}).update(variables_of(value, self.source))
            else:
                self.problems.add(place, f"{shorten(key)} is not a part of a group", _HINT)

    def _hosts(self, group: str, text: str, where: str, content: yaml.Node) -> None:
        try:
            hosts = expand_hosts(text)
        except RefusedError as refusal:
            self.problems.refuse(where, "", refusal)
            return
        settings = variables_of(content, self.source)
        for host in hosts:
            self.inventory.hosts.setdefault(host, where)
            self.inventory.members[group].append(host)
            self.inventory.host_vars.setdefault(host, {}).update(settings)
        if len(self.inventory.hosts) > MAX_NODES:
            self.problems.add(where, f"more than {MAX_NODES:,} nodes in total", "check the ends of the ranges")


def _files(directory: Path, name: str) -> list[Path]:
    alongside = [directory / f"{name}{suffix}" for suffix in _SUFFIXES]
    inside = sorted((directory / name).glob("*")) if (directory / name).is_dir() else []
    return [path for path in [*alongside, *inside] if path.is_file() and path.suffix in _SUFFIXES]


def _composed(text: str) -> yaml.Node | None:
    """The document with its merge keys (`<<: *common`) replaced by what they stand for."""
    root: yaml.Node | None = yaml.compose(text, Loader=yaml.CSafeLoader)
    loader, todo, done = yaml.CSafeLoader(""), [root], set[int]()
    while todo:
        node = todo.pop()
        if isinstance(node, yaml.CollectionNode) and id(node) not in done:
            done.add(id(node))
            if isinstance(node, yaml.MappingNode):
                loader.flatten_mapping(node)
                todo += [item for pair in node.value for item in pair]
            else:
                todo += node.value
    return root


def _variables(text: str, source: str, problems: Problems) -> dict[str, Setting]:
    hint = "compare it with what Ansible reads: ansible-inventory --list"
    try:
        document = _composed(text)
        if document is None or (isinstance(document, yaml.ScalarNode) and not document.value):
            return {}
        if isinstance(document, yaml.MappingNode):
            return variables_of(document, source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 0
        where = f"{source}:{line}" if mark else source
        problems.add(where, *why_broken(text, line, str(error.problem or error.context), hint))
        return {}
    except (yaml.YAMLError, RecursionError):
        problems.add(source, "not valid YAML", hint)
        return {}
    problems.add(source, "no variables: KEY: VALUE is expected", hint)
    return {}


def _plain(node: yaml.Node, depth: int) -> object:
    """A value as text, lists and mappings of text; booleans and numbers keep their type."""
    if depth > _MAX_DEPTH:
        return Opaque()
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        pairs = [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
        return {str(key.value): _plain(value, depth + 1) for key, value in pairs}
    return Opaque()


def _scalar(node: yaml.ScalarNode) -> object:
    type_name = str(node.tag).rpartition(":")[2]
    text = str(node.value)
    if node.tag == "!unsafe":
        # ansible-inventory marks what came from another system
        return text
    if not str(node.tag).startswith("tag:yaml.org,2002:"):
        return Opaque()
    if type_name == "null":
        return None
    if type_name == "bool":
        return text.lower() in ("yes", "true", "on", "y")
    if type_name == "int" and re.fullmatch(r"0|[1-9][0-9]{0,17}", text):
        return int(text)
    return text


def _values(body: str, text: str) -> list[str]:
    numbers, letters = _NUMBERS.fullmatch(body), _LETTERS.fullmatch(body)
    if numbers:
        first, last, step = numbers[1], numbers[2], int(numbers[3] or 1)
        width = len(first) if first.startswith("0") else 0
        if width and len(first) != len(last):
            raise RefusedError(f"{shorten(text)}: the ends of [{body}] differ in length", "write both with all digits")
        sequence = range(int(first), int(last) + 1, step) if step else range(0)
        if 0 < len(sequence) <= MAX_EXPRESSION:
            return [f"{number:0{width}d}" if width else str(number) for number in sequence]
    elif letters:
        first, last, step = letters[1] or letters[4], letters[2] or letters[5], int(letters[3] or letters[6] or 1)
        if step and first <= last:
            return [chr(code) for code in range(ord(first), ord(last) + 1, step)]
    raise RefusedError(
        f"{shorten(text)}: [{shorten(body)}] is not a valid range", "Ansible's ranges are [01:16] and [a:f]"
    )


def _match_one(word: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> list[str]:
    subscript = _SUBSCRIPT.fullmatch(word)
    if subscript:
        listed = _named(subscript[1], groups, hosts)
        first, colon, last = subscript[2], subscript[3], subscript[4]
        if colon:
            # Ansible includes the end
            end = None if last in ("", "-1") else int(last) + 1
            return listed[int(first or 0) if first != "-" else 0 : end] if last != "-" else []
        index = int(first) if first not in ("", "-") else 0
        return listed[index : index + 1 or None]
    return _named(word, groups, hosts)


def _named(word: str, groups: Mapping[str, Sequence[str]], hosts: Sequence[str]) -> list[str]:
    if word in ("all", "*"):
        return list(hosts)
    if word in groups:
        return list(groups[word])
    return [host for host in hosts if fnmatchcase(host, word)] if word else []
