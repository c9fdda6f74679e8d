"""A variable that a playbook or role reads is one that is set somewhere: Ansible itself says so only when it runs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from jinja2 import meta

from tests.support import node_modules
from tests.support.paths import ROOT

CONDITIONS = frozenset({"when", "that", "until", "failed_when", "changed_when"})
# what Ansible sets
MAGIC = re.compile(
    r"ansible_\w+|groups?|group_names|hostvars|inventory_dir|inventory_hostname|item|lookup|omit|playbook_dir|query|role_path"
)


class Whatever(dict[str, Any]):
    """Filters and tests by any name: only variables are of interest."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: str) -> Any:
        return lambda value, *_arguments, **_options: value

    def get(self, key: str, default: object = None) -> Any:
        return self[key]


class Loader(yaml.SafeLoader):
    """Tags of Ansible are plain text here."""


Loader.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 (a safe loader)


class Variables:
    """What is set and what is read."""

    def __init__(self) -> None:
        self.set: set[str] = set()
        self.read: defaultdict[str, set[str]] = defaultdict(set)
        self._jinja = jinja2.Environment(autoescape=False)  # noqa: S701 (nothing is rendered)
        self._jinja.filters = self._jinja.tests = Whatever()

    def walk(self, item: Any, where: str) -> None:
        """Note both in a playbook, a file of tasks or of variables."""
        if isinstance(item, dict):
            for key, value in item.items():
                self._pair(key, value, where)
                self.walk(value, where)
        elif isinstance(item, list):
            for value in item:
                self.walk(value, where)
        elif isinstance(item, str) and "{{" in item:
            self._template(item, where)

    def _pair(self, key: str, value: Any, where: str) -> None:
        if key in ("vars", "ansible.builtin.set_fact") and isinstance(value, dict):
            self.set |= value.keys()
        elif key in ("register", "loop_var"):
            self.set.add(value)
        elif key in CONDITIONS:
            for condition in value if isinstance(value, list) else [value]:
                # that of a step of node_steps is an option, and so a template
                self._template(condition if "{{" in str(condition) else f"{{{{ {condition} }}}}", where)

    def _template(self, text: str, where: str) -> None:
        for name in meta.find_undeclared_variables(self._jinja.parse(text)):
            self.read[name].add(where)


def files() -> Iterator[Path]:
    for pattern in ("playbooks/**/*.yml", "roles/*/tasks/*.yml", "group_vars/**/*.yml"):
        yield from sorted(ROOT.glob(pattern))


@cache
def variables_of_the_collection() -> Variables:
    variables = Variables()
    for pattern in ("group_vars/**/*.yml", "roles/*/defaults/main.yml", "roles/*/vars/*.yml"):
        for path in ROOT.glob(pattern):
            variables.set |= (load(path) or {}).keys()
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for spec in load(path)["argument_specs"].values():
            variables.set |= (spec.get("options") or {}).keys()
    for path in files():
        variables.walk(load(path), path.relative_to(ROOT).as_posix())
    return variables


def test_a_variable_that_is_read_is_set_by_a_role_a_playbook_or_the_program() -> None:
    variables = variables_of_the_collection()
    # the inventory, secrets, and what a command passes
    program = "\n".join(path.read_text("utf-8") for path in (ROOT / "deepopsctl").rglob("*.py"))
    passed = {name for pair in re.findall(r"\"(\w+)\"|\b(deepops_\w+)=", program) for name in pair}

    strangers = {
        name: sorted(where)
        for name, where in variables.read.items()
        if name.removesuffix("_next") not in variables.set | passed and not MAGIC.fullmatch(name)
    }
    assert strangers == {}
    assert len(variables.read) > 500


def facts() -> set[str]:
    """Of the nodes by the gate, and of the cluster by slurm_gather."""
    gather = ast.parse((ROOT / "plugins" / "action" / "slurm_gather.py").read_text(encoding="utf-8"))
    (cluster,) = (
        node.value
        for node in ast.walk(gather)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and ast.unparse(node.targets[0]) == "facts"
    )
    platform = node_modules.load("node.platform")
    nodes = (platform.os_release, platform.cgroup_facts, platform.memory_facts, platform.pmix_facts)
    return {ast.literal_eval(key) for key in cluster.keys if key} | {name for made in nodes for name in made()}


def test_a_fact_has_no_variables_name() -> None:
    """Where facts become variables (Ansible without our ansible.cfg), it would be read instead of the setting."""
    assert len(facts()) > 10
    assert facts() & variables_of_the_collection().set == set()
