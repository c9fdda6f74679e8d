"""Sets variables in settings.yml; the user's comments, order and other content stay."""

from __future__ import annotations

import io
from collections.abc import Mapping, MutableMapping

import yaml

from deepopsctl.errors import InputError
from deepopsctl.text.yaml_writer import block

_INTRO = "\n# Taken from the node list that this cluster was made from; edit it as you like.\n"


def with_settings(text: str, wanted: Mapping[str, object], where: str = "settings.yml") -> str:
    """The text with these variables set; mappings are merged key by key. Raises InputError on broken YAML."""
    if not wanted:
        return text
    try:
        present = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError.single(where, "is no valid YAML", "correct it, or restore it from git") from error
    if not present:
        # nothing but comments: a YAML editor would lose them
        return f"{text.rstrip()}\n{_INTRO}{_block(wanted)}"
    if not isinstance(present, dict):
        raise InputError.single(where, "holds no variables", "it needs lines of `name: value`")
    if merged(present, wanted) == present:
        return text
    return _edit(text, wanted)


def merged(present: Mapping[str, object], wanted: Mapping[str, object]) -> dict[str, object]:
    """Variables overridden by others; mappings merge one level deep, ignoring the case of keys."""
    variables = dict(present)
    for name, value in wanted.items():
        old = variables.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            new = {key.lower() for key in value}
            variables[name] = {**{key: item for key, item in old.items() if str(key).lower() not in new}, **value}
        else:
            variables[name] = value
    return variables


def _block(wanted: Mapping[str, object]) -> str:
    lines = []
    for name, value in wanted.items():
        if isinstance(value, Mapping) and value:
            # one key a line: this is a list that people edit
            lines.append(f"{name}:\n")
            lines += [f"  {line}\n" for line in _lines(value)]
        else:
            lines.append(block({name: value}))
    return "".join(lines)


def _lines(value: Mapping[str, object]) -> list[str]:
    return [f"{key}: null" if item is None else block({key: item}).rstrip() for key, item in value.items()]


def _edit(text: str, wanted: Mapping[str, object]) -> str:
    from ruamel.yaml import YAML

    # a YAML editor loses the comments above the start of the document
    head, start, body = text.rpartition("\n---\n") if not text.startswith("---\n") else ("", "---\n", text[4:])
    editor = YAML()
    editor.preserve_quotes = True
    editor.width = 4096
    document = editor.load(body)
    for name, value in wanted.items():
        old = document.get(name)
        if isinstance(old, MutableMapping) and isinstance(value, Mapping):
            for key, item in value.items():
                spelt = next((known for known in old if str(known).lower() == key.lower()), key)
                old[spelt] = item
        else:
            document[name] = dict(value) if isinstance(value, Mapping) else value
    stream = io.StringIO()
    editor.dump(document, stream)
    return f"{head}{start}{stream.getvalue()}"
