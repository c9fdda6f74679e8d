"""Every node by itself: it answers, its services run and come back after a reboot, its secrets are its own."""

from __future__ import annotations

import pytest

from deepopsctl.checks.check import Status
from deepopsctl.model.cluster import Role
from tests.support.node_modules import load
from tests.testinfra.collect import DATABASE_CONF, MUNGE_KEY, SSH_UNITS, Live, Snapshot
from tests.testinfra.evaluation import doctor_problems, words

node_units = load("node.services")


@pytest.fixture
def findings(live: Live) -> dict[str, list[str]]:
    """Failed checks of the doctor by what they are about; '' has all that are about no node."""
    problems: dict[str, list[str]] = {}
    for check in doctor_problems(live.directory.path):
        if check.status is Status.FAIL:
            problems.setdefault(check.target if check.target in live.declared.names else "", []).append(words(check))
    return problems


def test_every_node_answers_by_the_clusters_key_and_its_pinned_host_key(live: Live) -> None:
    silent = [f"{snapshot.node}: {snapshot.silence}" for snapshot in live.snapshots.values() if snapshot.silence]

    assert silent == []


def test_it_is_the_node_that_cluster_yml_declares(node: Snapshot) -> None:
    assert node.out("host").partition(".")[0] == node.node


def test_the_services_of_its_roles_run(live: Live, node: Snapshot) -> None:
    # a unit whose condition does not hold is none of this host's: a container has no clock to set
    states = {name: node.units[name] for name in live.daemons(node.node)}
    idle = {
        name: unit.get("ActiveState")
        for name, unit in states.items()
        if unit.get("ActiveState") != "active" and not node_units.is_refused_by_condition(unit)
    }

    assert idle == {}


def test_the_services_of_its_roles_start_at_boot(live: Live, node: Snapshot) -> None:
    asleep = {
        name: node.units[name].get("UnitFileState")
        for name in live.daemons(node.node)
        if not node_units.is_enabled(node.units[name])
    }

    assert asleep == {}


def test_it_can_be_reached_after_a_reboot(node: Snapshot) -> None:
    assert any(node_units.is_enabled(node.units[name]) for name in SSH_UNITS)


def test_only_munge_can_read_the_munge_key(node: Snapshot) -> None:
    assert {key: node.file(MUNGE_KEY).get(key) for key in ("owner", "group", "mode")} == {
        "owner": "munge",
        "group": "munge",
        "mode": "0400",
    }


def test_only_slurm_can_read_the_databases_password(dbd_host: Snapshot) -> None:
    assert {key: dbd_host.file(DATABASE_CONF).get(key) for key in ("owner", "mode")} == {
        "owner": "slurm",
        "mode": "0600",
    }


def test_the_databases_password_is_on_its_own_host_only(live: Live, node: Snapshot) -> None:
    has_it = bool(node.file(DATABASE_CONF))

    assert has_it == (node.node in live.names(Role.DBD))


def test_the_doctor_reports_no_problem_of_it(findings: dict[str, list[str]], node: Snapshot) -> None:
    assert findings.get(node.node, []) == []


def test_the_doctor_reports_no_problem_of_the_cluster(findings: dict[str, list[str]]) -> None:
    assert findings.get("", []) == []
