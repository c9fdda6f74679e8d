"""Roles run by real Ansible up to their modules, which only record what they were asked for: what a node would get.

Templates, variables, conditions and the specification of the role's arguments are the product's own.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.local_ansible import play
from tests.support.paths import ROOT

# Ansible gives such a module its arguments as a file of JSON
_RECORDER = """#!/usr/bin/python
# WANT_JSON
import json, sys
asked = {key: value for key, value in json.load(open(sys.argv[1])).items() if not key.startswith("_ansible")}
print(json.dumps({"changed": False, "asked": asked}))
"""


@dataclass(frozen=True)
class Asked:
    """One call of node_state: what a step of a role wants on a node."""

    step: str
    arguments: Mapping[str, Any]

    @property
    def packages(self) -> list[str]:
        packages: list[str] = self.arguments.get("packages", [])
        return packages

    @property
    def units(self) -> list[Mapping[str, Any]]:
        units: list[Mapping[str, Any]] = self.arguments.get("units", [])
        return units

    @property
    def files(self) -> list[Mapping[str, Any]]:
        """The files, in the order in which they are written."""
        files: list[Mapping[str, Any]] = self.arguments.get("files", [])
        return files

    def texts(self) -> dict[str, str]:
        """The content of each file, secret or not."""
        return {file["path"]: content(file) for file in self.files}


@dataclass(frozen=True)
class Recorded:
    """What the roles of a play asked for, and why they failed, each by the node."""

    asked: Mapping[str, Sequence[Asked]]
    failures: Mapping[str, str]
    output: str

    def step(self, host: str, step: str) -> Asked:
        """The call for a step of a node."""
        (match,) = (asked for asked in self.asked[host] if asked.step == step)
        return match


def content(file: Mapping[str, Any]) -> str:
    """What a file has in it."""
    if "secret_base64" in file:
        return base64.b64decode(file["secret_base64"]).decode()
    return str(file["content"])


def record(
    directory: Path,
    roles: Sequence[Mapping[str, object]],
    hosts: Mapping[str, Mapping[str, object]],
    groups: Mapping[str, Iterable[str]] | None = None,
    modules: Sequence[str] = ("node_state",),
) -> Recorded:
    """Run roles, each with its variables; `modules` are those that only record. `directory` is empty."""
    member = [
        {
            "host": host,
            "groups": ["slurm_cluster", *(group for group, names in (groups or {}).items() if host in names)],
        }
        for host in hosts
    ]
    add = {
        "name": "Groups",
        "ansible.builtin.add_host": {"name": "{{ item.host }}", "groups": "{{ item.groups }}"},
        "loop": member,
        "run_once": True,
    }
    plays = [
        {"name": "Groups", "hosts": "all", "gather_facts": False, "tasks": [add]},
        {"name": "Roles", "hosts": "slurm_cluster", "gather_facts": False, "roles": list(roles)},
    ]
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(_product(directory / "recording", modules))}
    done = play(directory, plays, hosts, settings=settings)
    asked: dict[str, list[Asked]] = {host: [] for host in hosts}
    failures = {}
    for result in done.results:
        if "asked" in result.data:
            asked[result.host].append(Asked(result.data["asked"].get("step", ""), result.data["asked"]))
        elif result.status == "failed":
            failures[result.host] = str(result.data.get("msg", ""))
    assert done.status == 0 or failures, done.output
    return Recorded(asked, failures, done.output)


def _product(directory: Path, modules: Sequence[str]) -> Path:
    """The collection with recording modules."""
    cluster = directory / "ansible_collections" / "deepopsctl" / "cluster"
    (cluster / "plugins" / "modules").mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name in ("galaxy.yml", "meta", "roles", "playbooks", "group_vars"):
            (cluster / path.name).symlink_to(path)
    for path in (ROOT / "plugins").iterdir():
        if path.name != "modules":
            (cluster / "plugins" / path.name).symlink_to(path)
    for path in (ROOT / "plugins" / "modules").glob("*.py"):
        target = cluster / "plugins" / "modules" / path.name
        if path.stem in modules:
            target.write_text(_RECORDER, encoding="utf-8")
        else:
            target.symlink_to(path)
    return directory
