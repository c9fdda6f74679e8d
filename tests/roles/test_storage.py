"""The component storage records what its gate expects, and comes before the daemons that wait for it."""

from __future__ import annotations

import jinja2.nativetypes
import pytest

from tests.roles.content import load, role_tasks

MOUNTS = [{"name": "home", "server": "ctl1"}, {"name": "data", "server": ""}]


def expected(host: str) -> set[str]:
    """The steps that the gate wants of a node."""
    expression = load("group_vars/all/storage.yml")["deepops_storage_steps"]
    template = jinja2.nativetypes.NativeEnvironment().from_string(expression)
    return set(template.render(storage_mounts=MOUNTS, inventory_hostname=host, group_names=["storage_nodes"]))


def recorded(role: str) -> set[str]:
    """The steps that a role records."""
    calls = (value for task in role_tasks(role) for value in task.values() if isinstance(value, dict))
    return {call["step"] for call in calls if "step" in call}


@pytest.mark.parametrize(
    ("host", "roles"), [("gpu1", ["storage"]), ("ctl1", ["storage", "nfs_server", "storage_quota"])]
)
def test_the_gate_expects_what_is_recorded(host: str, roles: list[str]) -> None:
    assert expected(host) == set().union(*(recorded(role) for role in roles))


def test_storage_is_there_before_slurm_is() -> None:
    order = [entry["ansible.builtin.import_playbook"] for entry in load("playbooks/site.yml")]

    assert order.index("storage.yml") < order.index("slurm.yml")


def test_a_cluster_without_storage_sees_no_task() -> None:
    for play in load("playbooks/storage.yml"):
        # a group without members leaves nothing of each of these
        assert "storage" in play["hosts"]
        assert "slurm_" not in play["hosts"]
