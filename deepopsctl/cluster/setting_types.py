"""The types of settings, from the roles' argument specs and the product's defaults, and checks of values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Ansible's own words (ansible.module_utils.parsing.convert_bool)
_TRUE = frozenset({"y", "yes", "on", "1", "true", "t"})
_FALSE = frozenset({"n", "no", "off", "0", "false", "f"})
_INT = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")
_LONGEST_NUMBER = 20
_LITERAL = {bool: "bool", int: "int", float: "float", list: "list", dict: "dict", str: "str"}
# `node_common_set_hostname: "{{ slurm_set_hostname | bool }}"`: the setting is what the role's option is
_PASSED = re.compile(r"^\s*(\w+): \"\{\{ (\w+)(?: \| (?:bool|int))? \}\}\"$", re.MULTILINE)
_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "list": "a list", "dict": "a mapping"}
_EXAMPLES = {"bool": "true", "int": "8", "float": "2.5", "list": "[a, b]", "dict": "{Key: value}"}
_RESOLVER: Any = yaml.resolver.Resolver()
_STANDARD = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class SettingType:
    """A type by Ansible's name, the type of a list's elements, and the choices if there are any."""

    name: str
    elements: str = ""
    choices: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The type in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        elements = {"str": " of texts", "dict": " of mappings"}.get(self.elements, "")
        return f"{_WORDS.get(self.name, 'a text')}{elements if self.name == 'list' else ''}"

    @property
    def example(self) -> str:
        """An example value."""
        if self.choices:
            return self.choices[0]
        return "[{name: a}, {name: b}]" if self.elements == "dict" else _EXAMPLES.get(self.name, "word")


# has no default: unset differs from an empty list
_NOT_SET: Mapping[str, SettingType] = {"cuda_toolkits": SettingType("list", "str")}


def setting_types(content: Path) -> Mapping[str, SettingType]:
    """The types of all settings that deepopsctl knows."""
    options = dict(_options(content))
    product: dict[str, object] = {}
    for path in content.glob("group_vars/all/*.yml"):
        product.update(_load(path))
    literal = {name: _of_value(value) for name, value in product.items() if not is_template(value)}
    texts = [path.read_text(encoding="utf-8") for path in content.glob("playbooks/*.yml")]
    passed = {name: options[option] for text in texts for option, name in _PASSED.findall(text) if option in options}
    return {**literal, **passed, **options, **_NOT_SET}


def _options(content: Path) -> Iterator[tuple[str, SettingType]]:
    for path in content.glob("roles/*/meta/argument_specs.yml"):
        for entry_point in _mapping(_load(path)["argument_specs"]).values():
            for name, spec in _mapping(entry_point).get("options", {}).items():
                choices = tuple(map(str, spec.get("choices", ())))
                yield name, SettingType(spec.get("type", "str"), spec.get("elements", ""), choices)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _load(path: Path) -> dict[str, object]:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER) or {}  # noqa: S506 - a safe loader


def _of_value(value: object) -> SettingType:
    return SettingType(_LITERAL.get(type(value), "str"))


def is_template(value: object) -> bool:
    """Whether a value is a template, which only Ansible can resolve."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def from_text(text: str, wanted: SettingType) -> object:
    """The value of `-e KEY=VALUE`, which is text, as its type; a ValueError where it can't be one."""
    if is_template(text):
        return text
    word = text.strip()
    if wanted.name == "bool" and word.lower() in _TRUE | _FALSE:
        return word.lower() in _TRUE
    if wanted.name == "int" and _INT.fullmatch(word):
        return int(word)
    if wanted.name == "float" and _FLOAT.fullmatch(word):
        return float(word)
    if wanted.name == "list" and not word.startswith(("[", "{")):
        if wanted.elements not in ("", "str"):
            raise ValueError(text)
        return [part.strip() for part in word.split(",") if part.strip()]
    if wanted.name in ("list", "dict"):
        return _structure(word, wanted)
    if wanted.name in ("bool", "int", "float") or (wanted.choices and text not in wanted.choices):
        raise ValueError(text)
    return text


def _structure(text: str, wanted: SettingType) -> object:
    try:
        node = yaml.compose(text, Loader=LOADER)
        if node is not None and fits(node, wanted):
            return yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(text) from error
    raise ValueError(text)


def fits(node: yaml.Node, wanted: SettingType) -> bool:
    """Whether a value of a YAML file is of the type, as Ansible's argument specs would say."""
    if not str(node.tag).startswith(_STANDARD) or (isinstance(node, yaml.ScalarNode) and is_template(node.value)):
        # !vault and templates: only Ansible can resolve them
        return True
    if wanted.name == "list":
        element_type = SettingType(wanted.elements)
        return isinstance(node, yaml.SequenceNode) and (
            not element_type.name or all(fits(item, element_type) for item in node.value)
        )
    if wanted.name == "dict":
        return isinstance(node, yaml.MappingNode)
    return isinstance(node, yaml.ScalarNode) and _scalar_fits(node, wanted)


def _scalar_fits(node: yaml.ScalarNode, wanted: SettingType) -> bool:
    type_name, text = str(node.tag).removeprefix(_STANDARD), str(node.value)
    if len(text) > _LONGEST_NUMBER and wanted.name in ("bool", "int", "float"):
        return False
    if type_name in ("bool", "int", "float") and _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) != node.tag:
        # `!!int x`: not even Ansible can load it
        return False
    if wanted.name == "bool":
        return type_name == "bool" or text.lower() in _TRUE | _FALSE
    if wanted.name == "int":
        return type_name == "int" or _INT.fullmatch(text) is not None
    if wanted.name == "float":
        return type_name in ("int", "float") or _FLOAT.fullmatch(text) is not None
    return not wanted.choices or text in wanted.choices
