"""What a module says of its arguments is what it takes: `ansible-doc` shows the one, Ansible checks the other."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils import basic

from tests.support import node_modules as nodeside
from tests.support.paths import ROOT

MODULES = sorted((ROOT / "plugins" / "modules").glob("*.py"))
FRAGMENT = "extends_documentation_fragment"
# what Ansible takes where a key is left out
UNSAID: Mapping[str, object] = {"type": "str", "required": False, "default": None, "choices": None, "elements": None}


class AskedError(Exception):
    """Carries the arguments that a module asks Ansible for."""

    def __init__(self, argument_spec: Mapping[str, Any], **_more: object) -> None:
        super().__init__()
        self.spec = argument_spec


def asked_by(argument_spec: Mapping[str, Any], **_more: object) -> None:
    raise AskedError(argument_spec)


def arguments_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(documented, asked for)."""
    module = nodeside.plugin("modules", path.stem)
    documented = yaml.safe_load(module.DOCUMENTATION)
    if not hasattr(module, "main"):
        # an action plugin does its whole work
        return documented["options"], nodeside.plugin("action", path.stem).ARGUMENTS
    monkeypatch.setattr(basic, "AnsibleModule", asked_by)
    with pytest.raises(AskedError) as caught:
        runpy.run_path(str(path), run_name="__main__")
    fragments = [documented[FRAGMENT]] if FRAGMENT in documented else []
    shared = [yaml.safe_load(fragment(name))["options"] for name in fragments]
    return {key: value for options in (*shared, documented.get("options") or {}) for key, value in options.items()}, (
        caught.value.spec
    )


def fragment(name: str) -> str:
    """The text of a documentation fragment of ours."""
    module = nodeside.plugin("doc_fragments", name.rpartition(".")[2])
    text: str = module.ModuleDocFragment.DOCUMENTATION
    return text


def differences(reported: Mapping[str, Any], asked: Mapping[str, Any], where: str = "") -> list[str]:
    result = [f"{where}{name}" for name in sorted(set(reported) ^ set(asked))]
    for name in sorted(set(reported) & set(asked)):
        for key, unsaid in UNSAID.items():
            one, other = reported[name].get(key, unsaid), asked[name].get(key, unsaid)
            if one != other:
                result.append(f"{where}{name}.{key}: {one} is told, {other} is so")
        # what a filter makes as a whole is told in prose
        if "suboptions" in reported[name]:
            result += differences(reported[name]["suboptions"], asked[name].get("options", {}), f"{where}{name}.")
    return result


OPTION_KEYS = {"description", "type", "required", "default", "choices", "elements", "suboptions"}
RESULT_KEYS = {"description", "type", "elements", "returned", "contains", "sample"}


def unexpected_keys(entries: Mapping[str, Any], allowed: set[str], nested: str, where: str) -> list[str]:
    problems = []
    for name, entry in entries.items():
        problems += [f"{where}.{name}: {key}" for key in sorted(set(entry) - allowed)]
        problems += unexpected_keys(entry.get(nested) or {}, allowed, nested, f"{where}.{name}")
    return problems


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_comma_in_a_description_is_no_key_of_its_own(path: Path) -> None:
    module = nodeside.plugin("modules", path.stem)
    options = yaml.safe_load(module.DOCUMENTATION).get("options") or {}
    results = yaml.safe_load(getattr(module, "RETURN", "")) or {}

    assert unexpected_keys(options, OPTION_KEYS, "suboptions", "options") == []
    assert unexpected_keys(results, RESULT_KEYS, "contains", "RETURN") == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_takes_what_it_documents(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert differences(*arguments_of(path, monkeypatch)) == []


def names_of(options: Mapping[str, Any]) -> set[str]:
    nested = (names_of(option.get("suboptions") or {}) for option in options.values())
    return set(options).union(*nested)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_option_has_a_name_that_ansible_uses_itself(path: Path) -> None:
    options = yaml.safe_load(nodeside.plugin("modules", path.stem).DOCUMENTATION).get("options") or {}

    assert names_of(options) & {"message", "syslog_facility"} == set()
