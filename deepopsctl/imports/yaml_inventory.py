"""An Ansible inventory in YAML form, as Ansible's own plugin reads it: groups with hosts, children and vars."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from deepopsctl.cluster.builder import MAX_NODES
from deepopsctl.imports.group_vars import variables_of
from deepopsctl.imports.host_patterns import expand_hosts
from deepopsctl.imports.ini_inventory import Inventory
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import Problems, RefusedError

_MAX_DEPTH = 50
_HINT = "a group has hosts:, children: and vars:, each a mapping"


def parse_yaml_inventory(text: str, source: str, problems: Problems) -> Inventory:
    """The inventory in a text; every part that can't be read is a problem."""
    inventory = Inventory()
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problems.add(f"{source}{line}", f"no valid YAML: {error.problem or error.context}", "compare it with Ansible")
        return inventory
    except (yaml.YAMLError, RecursionError):
        problems.add(source, "no valid YAML", "compare it with `ansible-inventory --list`")
        return inventory
    reader = _Reader(source, problems, inventory)
    for name, where, node in reader.pairs(root, source):
        reader.group(name, where, node, 0)
    return inventory


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
            self.problems.add(where, "is no mapping", _HINT)

    def group(self, name: str, where: str, node: yaml.Node, depth: int) -> None:
        """One group with all that is below it."""
        if depth > _MAX_DEPTH:
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
                self.problems.add(place, f"{shorten(key)} is no part of a group", _HINT)

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
