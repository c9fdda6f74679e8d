"""`-e`: variables as Ansible takes them on its command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

import yaml

from deepopsctl.cluster.renamed import references
from deepopsctl.cluster.settings import LOADER, SettingType, faults, from_text, setting_types, variables, wrong_type
from deepopsctl.errors import InputError, Problem
from deepopsctl.files import read_text
from deepopsctl.run.request import Variables
from deepopsctl.text.node_sets import shorten

Types = Mapping[str, SettingType]

_HINT = "write KEY=VALUE, KEY='a value with blanks', '{key: value}' or @FILE, each as one word of the shell"


def parse_extra_vars(values: Iterable[str], content: Path) -> tuple[Variables, ...]:
    """`KEY=VALUE ...`, JSON or YAML in brackets, `@FILE`; in the order given, later ones win.

    VALUE gets the type of its setting: Ansible would take it as text, and the text `false` is true. A setting with an
    old name has the new one, too.
    """
    texts = [text.strip() for text in values]
    types = setting_types(content) if texts else {}
    parsed = (_written(_parse(text, types)) for text in texts)
    return tuple(each for one in parsed for each in (one, references(names_in(one))) if each)


def names_in(variables: Variables) -> tuple[str, ...]:
    """The names of one `-e`; none of an encrypted file."""
    if not isinstance(variables, Path):
        return tuple(variables)
    text = read_text(variables)
    root = None if text.startswith("$ANSIBLE_VAULT") else yaml.compose(text, Loader=LOADER)
    return tuple(str(key.value) for key, _ in root.value) if isinstance(root, yaml.MappingNode) else ()


def _written(variables: Variables) -> Variables:
    """As the run's file has them: dates, and keys that are numbers, as text."""
    if isinstance(variables, Path):
        return variables
    try:
        written: dict[str, object] = json.loads(json.dumps(dict(variables), default=_date))
    except TypeError as error:
        raise InputError.single("-e", f"not understood: {error}", "put it in quotes if it is text") from error
    return written


def _date(value: object) -> str:
    if isinstance(value, date):
        return str(value)
    raise TypeError(f"{value!r} is not a valid value for a variable")


def _parse(text: str, types: Types) -> Variables:
    if text.startswith("@"):
        return _file(text[1:], types)
    if text.startswith("{"):
        return _parse_yaml(text, types)
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError as error:
        raise InputError.single("-e", f"{text}: {error}", _HINT) from error
    if not pairs or any(not (key.isidentifier() and equals) for key, equals, _ in pairs):
        raise InputError.single("-e", f"{text!r} sets no variable", _HINT)
    return {key: _typed(key, value, types) for key, _, value in pairs}


def _typed(key: str, value: str, types: Types) -> object:
    wanted = types.get(key)
    try:
        return from_text(value, wanted) if wanted else value
    except ValueError as error:
        raise InputError([wrong_type("-e", key, repr(shorten(value, 40)), wanted or SettingType("str"))]) from error


def _file(name: str, types: Types) -> Path:
    """Check the file, because Ansible's own errors say little; Ansible reads it again, with its own tags."""
    path = Path(name).expanduser().resolve()
    try:
        text = read_text(path)
    except OSError as error:
        hint = "check the path and its permissions"
        raise InputError.single("-e", f"{name} can't be read: {error.strerror or error}", hint) from error
    except UnicodeDecodeError as error:
        raise InputError.single("-e", f"{name} is not text in UTF-8", "save it as UTF-8") from error
    if text.startswith("$ANSIBLE_VAULT"):
        return path
    _check(text, name, types)
    return path


def _parse_yaml(text: str, types: Types) -> Variables:
    _check(text, "-e", types)
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError.single("-e", f"not understood: {' '.join(str(error).split())}", _HINT) from error
    pairs = ((str(key), value) for key, value in document.items())
    return {key: _typed(key, value, types) if isinstance(value, str) else value for key, value in pairs}


def _check(text: str, where: str, types: Types) -> None:
    root = variables(text, where)
    problems = [root] if isinstance(root, Problem) else list(faults(root, where, types))
    if not problems and not isinstance(root, yaml.MappingNode):
        problems = [Problem(where, "is not a mapping of names to values", _HINT)]
    if problems:
        # an option has no lines
        raise InputError(replace(problem, where="-e") if where == "-e" else problem for problem in problems)
