"""The gate of several components in one run, as real Ansible runs the role: who is asked how often, for what."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from deepopsctl.content import components
from tests.support.local_ansible import Played, collections_with_record_in, play
from tests.support.paths import ROOT

ASK = "Compare the node with its last good deploy"
# components in order, and for each node those with the last deploy's record; `-` where it is to have nothing of one
COMPONENTS = ("one", "two", "three")
NODES = {
    "same": "one two three",
    "due-for-one": "two three",
    "due-for-two": "one three",
    "due-for-three": "one two",
    "not-in-two": "one -two three",
    "due-for-one-not-in-two": "-two three",
    "no-more-in-two": "one two -two three",
}
# all nodes are this host: each has its own record
NODE = {"NODE": "{{ inventory_hostname }}"}


def steps(node: str) -> list[dict[str, Any]]:
    return [
        {"component": name, "steps": [] if f"-{name}" in NODES[node].split() else [f"step-{node}"]}
        for name in COMPONENTS
    ]


def deployed(node: str) -> list[str]:
    return [name for name in COMPONENTS if name in NODES[node].split()]


def deploy(component: str) -> dict[str, Any]:
    step = {"component": component, "step": "step-{{ inventory_hostname }}", "digest": "d1"}
    return {"name": component, "deepopsctl.cluster.node_state": step, "when": f"'{component}' in deployed"}


def gate(component: str) -> dict[str, Any]:
    """The first play of a component's playbook."""
    steps_of = f"drift_check_run | selectattr('component', 'eq', '{component}') | map(attribute='steps') | first"
    return {
        "name": component,
        "hosts": "all",
        "gather_facts": False,
        "environment": NODE,
        "pre_tasks": [
            {
                "name": "Leave out the nodes that need not be asked",
                "ansible.builtin.meta": "end_host",
                "when": f"'deepops_{component}_done' in group_names",
            }
        ],
        "roles": [
            {
                "role": "drift_check",
                "drift_check_component": component,
                "drift_check_steps": f"{{{{ {steps_of} }}}}",
            }
        ],
    }


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A run of three components on nodes that need something of one, or of none."""
    directory = tmp_path_factory.mktemp("gate")
    own = collections_with_record_in(directory, directory / "state", "NODE")
    hosts: dict[str, dict[str, object]] = {
        node: {"drift_check_run": steps(node), "deployed": deployed(node)} for node in NODES
    }
    earlier = {"name": "An earlier run", "hosts": "all", "gather_facts": False, "environment": NODE}
    plays: list[dict[str, Any]] = [
        {**earlier, "tasks": [deploy(component) for component in COMPONENTS]},
        *map(gate, COMPONENTS),
        {
            "name": "What came of it",
            "hosts": "all",
            "gather_facts": False,
            "tasks": [{"name": "Groups", "ansible.builtin.debug": {"var": "group_names"}}],
        },
    ]
    digests = json.dumps({"deepops_digests": dict.fromkeys(COMPONENTS, "d1")})
    result = play(directory, plays, hosts, "-e", digests, settings={"ANSIBLE_COLLECTIONS_PATH": str(own)})
    assert result.status == 0, result.output
    return result


def asked(played: Played, node: str) -> list[str]:
    return [
        result.data["invocation"]["module_args"]["component"]
        for result in played.results
        if (result.task, result.host) == (ASK, node)
    ]


@pytest.mark.parametrize(
    ("node", "by", "work"),
    [
        ("same", ["one"], []),
        ("due-for-one", ["one", "two"], ["one"]),
        ("due-for-two", ["one", "two", "three"], ["two"]),
        ("due-for-three", ["one", "three"], ["three"]),
        ("not-in-two", ["one"], []),
        ("due-for-one-not-in-two", ["one", "three"], ["one"]),
        ("no-more-in-two", ["one", "two", "three"], ["two"]),
    ],
)
def test_a_node_is_queried_once_and_again_after_work_was_done_on_it(
    played: Played, node: str, by: list[str], work: list[str]
) -> None:
    (groups,) = [
        result.data["group_names"] for result in played.results if (result.task, result.host) == ("Groups", node)
    ]

    assert asked(played, node) == by
    assert [name for name in COMPONENTS if f"deepops_{name}_todo" in groups] == work
    assert [name for name in COMPONENTS if f"deepops_{name}_done" in groups] == [n for n in COMPONENTS if n not in work]
    left = ["deepops_two_left_step-no-more-in-two"] if node == "no-more-in-two" else []
    assert [group for group in groups if group.startswith("deepops_two_left_")] == left
    new = [name for name in work if name not in NODES[node].split()]
    assert [name for name in COMPONENTS if f"deepops_{name}_new" in groups] == new


def test_the_gates_know_all_components_in_their_order() -> None:
    variables = yaml.safe_load((ROOT / "group_vars" / "all" / "main.yml").read_text(encoding="utf-8"))

    assert tuple(variables["deepops_steps"]) == components(ROOT)
