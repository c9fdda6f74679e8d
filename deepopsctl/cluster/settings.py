"""Checks of a site's settings before a run: types by the roles' argument specs, unreadable files, unknown names."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.renamed import RENAMED, is_now, references, with_new_names
from deepopsctl.cluster.role_parameters import role_parameters
from deepopsctl.cluster.secrets import is_encrypted, why_not_opened
from deepopsctl.errors import ControlMachineError, InputError, Problem
from deepopsctl.files import read_text
from deepopsctl.slurm.hardware import load_hardware
from deepopsctl.text.answers import Fields, members
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.yaml_reader import PlainTagLoader, duplicate_keys, is_endless, why_broken

_SPECS = "roles/*/meta/argument_specs.yml"
# the suffixes that Ansible reads; it ignores `.bak`, `~` and others
_SUFFIXES = frozenset({"", ".yml", ".yaml", ".json"})
# a closer match is a typing error; other names are the site's own
_NEAR = 0.85
# all but one have an underscore, which tells them from words in comments
_NAME = re.compile(r"[a-z]\w*_\w+|\benvironments\b")

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Ansible's own words (ansible.module_utils.parsing.convert_bool)
_TRUE = frozenset({"y", "yes", "on", "1", "true", "t"})
_FALSE = frozenset({"n", "no", "off", "0", "false", "f"})
_OFF = _FALSE | {"", "~", "null", "none"}
_INT = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")
_LONGEST_NUMBER = 20
_LITERAL = {bool: "bool", int: "int", float: "float", list: "list", dict: "dict", str: "str"}
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


def require_settings(directory: ClusterDir, content: Path) -> None:
    """Raise InputError for unreadable variable files, duplicate keys, values of a wrong type, and names without effect.

    Ansible would report neither file nor line, accept a text such as `maybe` as true, and ignore what a play passes.
    """
    types = setting_types(content)
    problems: list[Problem] = []
    files = list(_parsed_files(directory))
    parameters = role_parameters(content, {name for _, parsed in files for name, _ in _names(parsed)})
    for where, parsed in files:
        problems += [parsed] if isinstance(parsed, Problem) else faults(parsed, where, types)
        problems += _without_effect(parsed, where, parameters)
    if problems:
        raise InputError(problems)
    load_hardware(directory.hardware)


def are_compared(directory: ClusterDir, content: Path) -> bool:
    """Whether `require_settings` compares all that a site sets: no template, no tag, no list of mappings with options.

    An encrypted file is not looked into, but for the secrets, which deepopsctl makes.
    """
    specs = (each for path in content.glob(_SPECS) for each in _each_option(path))
    with_parts = {name for name, option in specs if "options" in option.values}
    for path in _files(directory):
        root = _variables(path, "")
        if isinstance(root, Problem) or (root is None and path != directory.secrets and read_text(path).strip()):
            return False
        if any(name in with_parts for name, _ in _names(root)) or (root and any(map(_is_open, _all_nodes(root)))):
            return False
    return True


def _all_nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """A node and all below it, keys as well."""
    below = [root]
    while below:
        node = below.pop()
        yield node
        if isinstance(node, yaml.MappingNode):
            below += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            below += node.value


def _is_open(node: yaml.Node) -> bool:
    return is_template(node.value) or not str(node.tag).startswith(_STANDARD)


def faults(root: yaml.Node | None, where: str, types: Mapping[str, SettingType]) -> Sequence[Problem]:
    """The problems of a file's variables."""
    if root is None:
        return []
    if wrong := [*_wrong_values(root, where, types)]:
        return wrong
    loaded = _loaded(root, where)
    return [loaded] if isinstance(loaded, Problem) else []


def _without_effect(root: yaml.Node | Problem | None, where: str, parameters: Collection[str]) -> Iterator[Problem]:
    """Settings that a playbook passes to its role: the site's value would be ignored."""
    for name, line in _names(root):
        if name in parameters:
            hint = "remove it: deepopsctl computes the value, see settings.md"
            yield Problem(f"{where}:{line}", f"{name} has no effect here: a playbook passes it to the role", hint)


def _wrong_values(root: yaml.Node, where: str, types: Mapping[str, SettingType]) -> Iterator[Problem]:
    for key in duplicate_keys(root):
        line = key.start_mark.line + 1
        yield Problem(f"{where}:{line}", f"the key {shorten(str(key.value))} is given twice", "keep one of them")
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if str(key.value) == "slurm_config" and isinstance(value, yaml.MappingNode):
            yield from _one_key_to_slurm(value, where)
        wanted = types.get(str(key.value))
        if wanted and not fits(value, wanted):
            yield wrong_type(f"{where}:{value.start_mark.line + 1}", str(key.value), _shown(value), wanted)


def wrong_type(where: str, name: str, shown: str, wanted: SettingType) -> Problem:
    """The problem for a value of a wrong type."""
    return Problem(where, f"{name} is {shown}, which is not {wanted.words}", f"for example `{name}: {wanted.example}`")


def require_vault_password(directory: ClusterDir, environment: Mapping[str, str]) -> None:
    """Raise if the vault password is missing or wrong; Ansible reports errors of its other password sources."""
    others = {name for name in environment if name.startswith("ANSIBLE_VAULT_")} - {"ANSIBLE_VAULT_PASSWORD_FILE"}
    if others or (directory.path / "ansible.cfg").is_file() or not directory.secrets.is_file():
        return
    if problem := why_closed(directory, environment):
        hint = "restore .vault-password and secrets.yml, or name the password file in $ANSIBLE_VAULT_PASSWORD_FILE"
        raise ControlMachineError(f"{directory.path}: {problem}", hint)


def why_closed(directory: ClusterDir, environment: Mapping[str, str]) -> str:
    """Why the secrets can't be decrypted; '' if the password fits, or a program provides it."""
    if not is_encrypted(directory.secrets):
        return ""
    configured = environment.get("ANSIBLE_VAULT_PASSWORD_FILE", "")
    path = Path(configured).expanduser() if configured else directory.vault_password
    if not path.is_file():
        return f"{configured or path.name} is missing, so the secrets can't be opened"
    # a program that queries a key store: Ansible runs it and reports its errors
    return "" if os.access(path, os.X_OK) else why_not_opened(directory.secrets, path)


def misspelt_settings(directory: ClusterDir, content: Path, option_names: Iterable[str] = ()) -> tuple[Problem, ...]:
    """Unknown variables with a name close to a known one or the name of a role, and settings with an old name.

    `option_names` are the names of `-e`.
    """
    known, roles = known_names(content), {path.parts[-3] for path in content.glob(_SPECS)}
    named = [(f"{where}:{line}", name) for where, root in _parsed_files(directory) for name, line in _names(root)]
    problems = []
    for where, name in [*named, *(("-e", name) for name in option_names)]:
        if name in RENAMED:
            problems.append(Problem(where, is_now(name), "rename it: the old name works until deepopsctl 0.2.0"))
            continue
        near = get_close_matches(name, known, n=1, cutoff=_NEAR) if name not in known else []
        if meant := [each for each in near if each not in role_parameters(content, near)]:
            problems.append(Problem(where, f"{name} is not a setting of deepopsctl", f"did you mean {meant[0]}?"))
        elif name not in known and (role := max((each for each in roles if name.startswith(f"{each}_")), default="")):
            hint = f"settings of the role are in roles/{role}/README.md"
            problems.append(Problem(where, f"{name} is not a setting of deepopsctl", hint))
    return tuple(problems)


def active_settings(directory: ClusterDir) -> Iterator[tuple[str, str]]:
    """The name of each setting that is neither empty nor false, with its file and line; nothing of encrypted files."""
    for where, root in _parsed_files(directory):
        for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
            if value.value if isinstance(value, yaml.CollectionNode) else str(value.value).lower() not in _OFF:
                yield str(key.value), f"{where}:{key.start_mark.line + 1}"


def site_values(directory: ClusterDir) -> dict[str, object]:
    """The site's settings for all nodes by the names of today; of templates and values with tags the text.

    Nothing of encrypted files. InputError for a file that is not valid YAML.
    """
    values: dict[str, object] = {}
    for path in _files(directory):
        if path.is_relative_to(directory.inventory_dir / "group_vars" / "all"):
            where = str(path.relative_to(directory.path))
            root = _variables(path, where)
            loaded = _loaded(root, where) if isinstance(root, yaml.Node) else root
            if isinstance(loaded, Problem):
                raise InputError([loaded])
            if isinstance(loaded, dict):
                values.update(with_new_names(loaded))
    return values


def renamed_variables(directory: ClusterDir) -> dict[Path, dict[str, str]]:
    """For each variable file with old names, relative to the inventory: the new ones, as templates of them."""
    files = {path: references(name for name, _ in _names(_variables(path, ""))) for path in _files(directory)}
    return {path.relative_to(directory.inventory_dir): new for path, new in files.items() if new}


def known_names(content: Path) -> frozenset[str]:
    """All known settings: the product's defaults and the roles' options."""
    texts = [*content.glob("group_vars/all/*.yml"), *content.glob("roles/*/defaults/main.yml")]
    texts += content.glob(_SPECS)
    names = {name for path in texts for name in _NAME.findall(path.read_text(encoding="utf-8"))}
    return frozenset(names - RENAMED.keys())


def variables(text: str, where: str) -> yaml.Node | Problem | None:
    """The mapping of a variable file, None if it is empty, or the problem that prevents reading it."""
    try:
        root = yaml.compose(text, Loader=LOADER)
    except RecursionError:
        return Problem(where, "is nested too deeply", "it needs lines of `name: value`")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        hint = "check indentation, quotes and brackets there and above"
        explanation = why_broken(text, line, str(error.problem or error.context), hint)
        return Problem(f"{where}:{line}" if line else where, *explanation)
    except yaml.YAMLError as error:
        return Problem(where, f"not valid YAML: {' '.join(str(error).split())}", "take out what is not a text")
    if root is not None and is_endless(root):
        return Problem(where, "its anchors (&name, *name) stand for too many values", "write the values out")
    if root is None or isinstance(root, yaml.MappingNode) or (isinstance(root, yaml.ScalarNode) and not root.value):
        return root
    return Problem(where, "holds no variables", "it needs lines of `name: value`")


def setting_types(content: Path) -> Mapping[str, SettingType]:
    """The types of all settings that deepopsctl knows."""
    options = dict(_options(content))
    product: dict[str, object] = {}
    for path in content.glob("group_vars/all/*.yml"):
        product.update(_load(path))
    literal = {name: _of_value(value) for name, value in product.items() if not is_template(value)}
    types = {**literal, **options, **_NOT_SET}
    return types | {old: types[new] for old, new in RENAMED.items() if new in types}


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


def _loaded(root: yaml.Node, where: str) -> object | Problem:
    """What a file has; or the first value that Ansible can't load either, such as the date 2026-02-30."""
    try:
        value: object = PlainTagLoader("").construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return Problem(f"{where}:{line}", f"not valid YAML: {error.problem}", "put it in quotes if it is text")
    return value


def _one_key_to_slurm(config: yaml.MappingNode, where: str) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for key in (each for each, _ in config.value if isinstance(each, yaml.ScalarNode)):
        first = seen.setdefault(str(key.value).lower(), str(key.value))
        if first != key.value:
            what = f"{shorten(first)} and {shorten(str(key.value))} are one key to Slurm"
            yield Problem(f"{where}:{key.start_mark.line + 1}", what, "keep one of them")


def _shown(value: yaml.Node) -> str:
    if isinstance(value, yaml.ScalarNode):
        return repr(shorten(str(value.value), 40)) if value.value else "empty"
    return "a list" if isinstance(value, yaml.SequenceNode) else "a mapping"


def _parsed_files(directory: ClusterDir) -> Iterator[tuple[str, yaml.Node | Problem | None]]:
    """The path of each variable file, with its content or the problem that prevents reading it."""
    for path in _files(directory):
        where = str(path.relative_to(directory.path))
        yield where, _variables(path, where)


def _files(directory: ClusterDir) -> Iterator[Path]:
    for subdirectory in ("group_vars", "host_vars"):
        for path in sorted((directory.inventory_dir / subdirectory).rglob("*")):
            # Ansible reads a pipe of such a name, too
            if not path.is_dir() and path.suffix in _SUFFIXES and not path.name.startswith("."):
                yield path


def _variables(path: Path, where: str) -> yaml.Node | Problem | None:
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        return Problem(where, "is not text in UTF-8", "save it as UTF-8")
    except OSError as error:
        return Problem(where, f"can't be read: {error.strerror}", "check the path and its permissions")
    return None if text.startswith("$ANSIBLE_VAULT") else variables(text, where)


def _names(root: yaml.Node | Problem | None) -> Iterator[tuple[str, int]]:
    if isinstance(root, yaml.MappingNode):
        for key, _ in root.value:
            yield str(key.value), key.start_mark.line + 1


def _options(content: Path) -> Iterator[tuple[str, SettingType]]:
    for path in content.glob(_SPECS):
        for name, option in _each_option(path):
            if option.text("type") == "raw":
                # anything, which a filter of the role checks: its default has the type
                if "default" in option.values:
                    yield name, _of_value(option.values["default"])
                continue
            wanted = option.text("type") or "str"
            yield name, SettingType(wanted, option.text("elements"), option.texts("choices"))


@functools.cache
def _each_option(path: Path) -> Sequence[tuple[str, Fields]]:
    """The options of a role; a run needs them twice."""
    entry_points = members(_load(path)["argument_specs"])
    return [option for _, entry_point in entry_points for option in entry_point.members("options")]


def _load(path: Path) -> dict[str, object]:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER) or {}  # noqa: S506 - a safe loader


def _of_value(value: object) -> SettingType:
    return SettingType(_LITERAL.get(type(value), "str"))


def _structure(text: str, wanted: SettingType) -> object:
    try:
        node = yaml.compose(text, Loader=LOADER)
        if node is not None and fits(node, wanted):
            return yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(text) from error
    raise ValueError(text)


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
