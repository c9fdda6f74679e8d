"""group_vars and host_vars of an inventory: the variables of each file, with their lines."""

from __future__ import annotations

from pathlib import Path

import yaml

from deepopsctl.cluster.import_report import Carryover
from deepopsctl.imports.ini_inventory import Setting
from deepopsctl.text.problems import Problems
from deepopsctl.text.source import read_source
from deepopsctl.text.yaml_reader import why_broken

_SUFFIXES = (".yml", ".yaml", "")
_MAX_DEPTH = 20


class Opaque:
    """A value that only Ansible can resolve: a vault string or another tag."""


def read_variables(directory: Path, name: str, carryover: Carryover, problems: Problems) -> dict[str, Setting]:
    """The variables of `name` (a group or host) in a group_vars or host_vars directory; later files win."""
    variables: dict[str, Setting] = {}
    for path in _files(directory, name):
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


def _files(directory: Path, name: str) -> list[Path]:
    alongside = [directory / f"{name}{suffix}" for suffix in _SUFFIXES]
    inside = sorted((directory / name).glob("*")) if (directory / name).is_dir() else []
    return [path for path in [*alongside, *inside] if path.is_file() and path.suffix in _SUFFIXES]


def _variables(text: str, source: str, problems: Problems) -> dict[str, Setting]:
    hint = "compare it with what Ansible reads: ansible-inventory --list"
    try:
        document = yaml.compose(text, Loader=yaml.CSafeLoader)
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
        problems.add(source, "no valid YAML", hint)
        return {}
    problems.add(source, "no variables: KEY: VALUE is expected", hint)
    return {}


def variables_of(node: yaml.Node, source: str) -> dict[str, Setting]:
    """The variables of a mapping, with their lines; empty for other nodes."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {
        str(key.value): Setting(_plain(value, 0), f"{source}:{key.start_mark.line + 1}")
        for key, value in node.value
        if isinstance(key, yaml.ScalarNode)
    }


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
    if not str(node.tag).startswith("tag:yaml.org,2002:"):
        return Opaque()
    if type_name == "null":
        return None
    if type_name == "bool":
        return text.lower() in ("yes", "true", "on", "y")
    if type_name == "int" and text.isascii() and text.isdecimal() and len(text) < 19:
        return int(text)
    return text
