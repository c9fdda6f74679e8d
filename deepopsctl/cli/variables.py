"""`-e`: variables as Ansible takes them on its command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

import yaml

from deepopsctl.errors import InputError
from deepopsctl.invocation import Variables

_HINT = "write KEY=VALUE, '{key: value}' or @FILE"


def parse_extra_vars(given: Iterable[str]) -> tuple[Variables, ...]:
    """`KEY=VALUE ...`, JSON or YAML in brackets, `@FILE`; in the order given, later ones win."""
    return tuple(_parse(text.strip()) for text in given)


def _parse(text: str) -> Variables:
    if text.startswith("@"):
        return _file(text[1:])
    if text.startswith("{"):
        return _parse_yaml(text)
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError as error:
        raise InputError.single("-e", f"{text}: {error}", _HINT) from error
    if not pairs or any(not (key.isidentifier() and equals) for key, equals, _ in pairs):
        raise InputError.single("-e", f"{text!r} sets no variable", _HINT)
    return {key: value for key, _, value in pairs}


def _file(name: str) -> Path:
    """Only looked at, for Ansible says little of what is wrong: it is Ansible that reads it, with its own tags."""
    path = Path(name).expanduser().resolve()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        hint = "check the path and its permissions"
        raise InputError.single("-e", f"{name} can't be read: {error.strerror or error}", hint) from error
    except UnicodeDecodeError as error:
        raise InputError.single("-e", f"{name} is no text in UTF-8", "save it as UTF-8") from error
    if text.startswith("$ANSIBLE_VAULT"):
        return path
    try:
        root = yaml.compose(text)
    except yaml.YAMLError as error:
        raise InputError.single("-e", f"{name} is no YAML: {_one_line(error)}") from error
    if not isinstance(root, yaml.MappingNode):
        raise InputError.single("-e", f"{name} is no mapping of names to values", _HINT)
    return path


def _parse_yaml(text: str) -> Variables:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError.single("-e", f"not understood: {_one_line(error)}", _HINT) from error
    if not isinstance(found, dict):
        raise InputError.single("-e", "is no mapping of names to values", _HINT)
    return {str(key): value for key, value in found.items()}


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
