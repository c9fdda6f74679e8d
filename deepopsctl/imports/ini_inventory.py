"""An Ansible inventory in INI form: hosts, groups, children and variables, as Ansible's own plugin reads it.

Not by that plugin: it stops at the first error, knows no line of a host or variable, and expands ranges of any length.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from deepopsctl.cluster.builder import MAX_NODES
from deepopsctl.imports.host_patterns import expand_hosts
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import Problems, RefusedError

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_PORT = re.compile(r"(.*[^:]):([0-9]{1,5})")


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
        names = dict.fromkeys([*self.members, *self.children, *(c for many in self.children.values() for c in many)])
        return {name: tuple(dict.fromkeys(self._hosts_of(name, set()))) for name in names}

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


def _begin(header: re.Match[str], where: str, inventory: Inventory) -> tuple[str, str]:
    section, section_type = header[1], header[2] or "hosts"
    if section_type not in ("hosts", "vars", "children"):
        raise RefusedError(f"[{section}:{section_type}] is no section", "use [GROUP], [GROUP:vars], [GROUP:children]")
    inventory.where.setdefault(section, where)
    (inventory.members if section_type == "hosts" else inventory.children).setdefault(section, [])
    return section, section_type


def _read_variable(line: str, where: str, into: dict[str, Setting]) -> None:
    key, equals, value = line.partition("=")
    if not equals or not re.fullmatch(r"\s*[A-Za-z_][A-Za-z0-9_]*\s*", key):
        raise RefusedError(f"{shorten(line)!r} is no VARIABLE=VALUE", "under [GROUP:vars] every line sets a variable")
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
