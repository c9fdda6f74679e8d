"""Playbooks and roles as data, for the tests that read all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from tests.support.paths import ROOT

ROLES = tuple(sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir()))
PLAYBOOKS = tuple(sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "playbooks").rglob("*.yml")))

Task = Mapping[str, Any]

# what several roles share, with its default; computed values have names of their own
SITE_WIDE = {
    name: value
    for path in sorted((ROOT / "group_vars" / "all").glob("*.yml"))
    for name, value in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items()
    if not name.startswith(("deepops_", "__deepops_"))
}
# what is not set is left alone on nodes, so there is no default
WITHOUT_DEFAULT = {"nvidia_container_toolkit", "nvidia_dcgm", "nvidia_gdrcopy"}


@cache
def load(path: str) -> Any:
    """A YAML file of the repository, to be read and not changed; {} where it does not exist."""
    file = ROOT / path
    # libyaml's loader takes a tenth of the time
    return yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader) or {} if file.exists() else {}


def options(role: str) -> dict[str, dict[str, Any]]:
    """The variables of a role's main entry point."""
    specification: dict[str, dict[str, Any]] = load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"][
        "options"
    ]
    return specification


def steps_of(role: str) -> set[str]:
    """The steps that a role says it records."""
    return set(load(f"roles/{role}/meta/steps.yml").get("steps", []))


def with_inner(tasks: Iterable[Task]) -> Iterator[Task]:
    """Tasks and those in their blocks; a block itself is none, and a call of several steps is one for each."""
    for task in tasks:
        for step in task.get("deepopsctl.cluster.node_steps", {}).get("steps", []):
            options = step.get("options", {})
            named = {name: step[name] for name in ("step",) if name in step}
            yield {"name": task["name"], f"deepopsctl.cluster.{step['module']}": {
                **named, **(options if isinstance(options, dict) else {})}}  # fmt: skip
        parts = [part for part in ("block", "rescue", "always") if part in task]
        for part in parts:
            yield from with_inner(task[part])
        if not parts:
            yield task


def role_tasks(role: str) -> Iterator[Task]:
    """All tasks and handlers of a role."""
    for directory in ("tasks", "handlers"):
        for path in sorted((ROOT / "roles" / role / directory).glob("*.yml")):
            yield from with_inner(load(path.relative_to(ROOT).as_posix()) or [])


def plays(playbook: str) -> Iterator[Mapping[str, Any]]:
    """The plays of a playbook, without its imports."""
    return (play for play in load(playbook) if "hosts" in play)


def play_tasks(playbook: str) -> Iterator[Task]:
    """All tasks and handlers that a playbook has itself."""
    for play in plays(playbook):
        for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
            yield from with_inner(play.get(part, []))


def all_tasks() -> Iterator[tuple[str, Task]]:
    """Every task of the product with where it is."""
    for playbook in PLAYBOOKS:
        yield from ((playbook, task) for task in play_tasks(playbook))
    for role in ROLES:
        yield from ((f"roles/{role}", task) for task in role_tasks(role))


def role_calls(playbook: str) -> Iterator[Mapping[str, Any]]:
    """The roles that a playbook calls, includes or imports, with the variables it passes to them."""
    for play in plays(playbook):
        yield from play.get("roles", [])
        for task in with_inner([*play.get("tasks", []), *play.get("post_tasks", [])]):
            for module in ("include_role", "import_role"):
                if named := task.get(f"ansible.builtin.{module}"):
                    yield {"role": named["name"], "tags": task.get("tags", []), **task.get("vars", {})}
