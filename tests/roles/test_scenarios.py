"""Molecule's scenarios apply the product's own playbooks, and between them every role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from deepopsctl.checks.suites import EXPLICIT, SUITES
from deepopsctl.validation.result import playbook_of
from tests.roles.content import ROLES, load, options, plays, role_calls, with_inner
from tests.support.paths import ROOT

SHARED = ".config/molecule/config.yml"
SCENARIOS = tuple(sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")))
SITE = "playbooks/site.yml"
# the playbooks that a command line runs; `deploy` without a component is all of them
COMMANDS = {"deploy": (SITE,), "validate": tuple(f"playbooks/{playbook_of(suite)}.yml" for suite in SUITES)}
# single roles in a site's own playbook
ALONE = "roles"
# these find nothing to do on a cluster without monitoring
WATCHING = ("playbooks/monitoring.yml", "playbooks/validate/monitoring.yml")

each_cluster = pytest.mark.parametrize("scenario", sorted({*SCENARIOS} - {ALONE}))


def merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Two configurations as Molecule merges them: mappings key by key, of all else the second wins."""
    both = {key: merged(shared[key], own[key]) for key in shared.keys() & own if isinstance(own[key], Mapping)}
    return {**shared, **own, **both}


def config(scenario: str) -> dict[str, Any]:
    """A scenario's configuration."""
    return merged(load(SHARED), load(f"molecule/{scenario}/molecule.yml"))


def sequence(scenario: str) -> list[str]:
    """The steps of `molecule test`."""
    steps: list[str] = config(scenario)["scenario"]["test_sequence"]
    return steps


def step_playbook(scenario: str, step: str) -> str:
    """The playbook behind a step, by its path in the repository; '' for a step that has none."""
    name = config(scenario)["ansible"]["playbooks"].get(step, f"{step}.yml")
    path = (ROOT / "molecule" / scenario / name).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_file() else ""


def applied(playbook: str) -> Iterator[str]:
    """A playbook, those that it imports, and those that it runs by deepopsctl."""
    yield playbook
    directory = (ROOT / playbook).parent
    for entry in load(playbook):
        if imported := entry.get("ansible.builtin.import_playbook"):
            yield from applied((directory / imported).resolve().relative_to(ROOT).as_posix())
    for play in plays(playbook):
        for task in with_inner(play.get("tasks", [])):
            yield from _commanded(task)


def _commanded(task: Mapping[str, Any]) -> Iterator[str]:
    argv = (task.get("ansible.builtin.command") or {}).get("argv", [])
    for word in argv if "--check" not in argv else []:
        for module in COMMANDS.get(word, ()):
            yield from applied(module)


def roles_of(scenario: str) -> set[str]:
    """The roles that a scenario applies in any of its steps."""
    starts = filter(None, (step_playbook(scenario, step) for step in sequence(scenario)))
    playbooks = {playbook for start in starts for playbook in applied(start)}
    idle = set() if is_watched(scenario) else set(WATCHING)
    return {call["role"] for playbook in playbooks - idle for call in role_calls(playbook)}


def is_watched(scenario: str) -> bool:
    """Whether its nodes are made for monitoring; a lab has none otherwise, whatever site.yml imports."""
    return "--monitoring" in (ROOT / "molecule" / scenario / "create.yml").read_text(encoding="utf-8")


def test_every_role_is_in_a_scenario() -> None:
    covered: set[str] = set().union(*(roles_of(scenario) for scenario in SCENARIOS))
    # a load that lasts: the lab's tests run it, and people where they name it
    named = {call["role"] for suite in EXPLICIT for call in role_calls(f"playbooks/{playbook_of(suite)}.yml")}

    assert sorted(set(ROLES) - covered - named) == []


@each_cluster
def test_a_scenario_converges_by_the_products_own_playbook(scenario: str) -> None:
    assert SITE in applied(step_playbook(scenario, "converge"))


@each_cluster
def test_a_scenario_runs_twice_tries_check_mode_and_is_verified(scenario: str) -> None:
    wanted = ["create", "converge", "idempotence", "side_effect", "verify"]

    assert [step for step in sequence(scenario) if step in wanted] == wanted


def test_single_roles_run_twice_without_anything_of_deepopsctls_command_line() -> None:
    steps = ["create", "converge", "idempotence", "verify"]
    arguments = config(ALONE)["ansible"]["executor"]["args"]["ansible_playbook"]
    calls = list(role_calls(step_playbook(ALONE, "converge")))

    assert [step for step in sequence(ALONE) if step in steps] == steps
    assert arguments == ["--inventory=${MOLECULE_EPHEMERAL_DIRECTORY}/hosts.yml"]
    assert {call["role"] for call in calls} == {
        f"deepopsctl.cluster.{role}" for role in ("node_common", "mariadb", "slurmdbd", "slurmctld", "slurmd")
    }
    shared = set(load("molecule/roles/group_vars/all.yml"))
    # what each of them requires, and nothing that is not in its specification
    for call in calls:
        known = options(call["role"].rpartition(".")[2])
        assert {name for name, option in known.items() if option.get("required")} <= set(call) | shared
        assert set(call) - {"role", "tags"} <= set(known), call["role"]
