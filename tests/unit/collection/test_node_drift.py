"""What a node says of its components for `status`: records compared with reality, one question for all of them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import node_modules as nodeside
from tests.support.paths import ROOT

node_drift = nodeside.load("node.drift")
node_owned = nodeside.load("node.ownership")
node_packages = nodeside.load("node.packages")
node_record = nodeside.load("node.record")
node_units = nodeside.load("node.services")

DIGEST = "d"
DIGESTS = dict.fromkeys(("slurm", "monitoring", "nvidia", "storage"), DIGEST)
RUNNING = {"ActiveState": "active", "UnitFileState": "enabled"}


@pytest.fixture
def asked(state: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A node without packages and units, that remembers what dpkg and systemd were asked for."""
    calls: list[list[str]] = []

    def answer(names: list[str]) -> dict[str, Any]:
        calls.append(names)
        return {}

    monkeypatch.setattr(node_packages, "installed", answer)
    monkeypatch.setattr(node_units, "show", answer)
    return calls


def record(component: str, step: str, digest: str = DIGEST, **items: Any) -> None:
    node_record.save(component, step, digest, dict(node_record.items(), **items))


def wanted(**steps: list[str]) -> list[dict[str, Any]]:
    return [{"component": component, "steps": listed} for component, listed in steps.items()]


def test_each_component_is_compared_with_its_own_records(asked: list[list[str]]) -> None:
    record("slurm", "common", packages={"munge": "1"}, units={"munge.service": True})
    record("monitoring", "node", "older")

    result = node_drift.compare(wanted(slurm=["common", "slurmd"], monitoring=["node"], nvidia=["driver"]), DIGESTS)

    assert result["slurm"]["differences"] == ["package munge is missing, was 1", "munge.service is unknown"]
    assert (result["slurm"]["missing"], result["slurm"]["stale"]) == (["slurmd"], [])
    assert (result["monitoring"]["differences"], result["monitoring"]["stale"]) == ([], ["node"])
    assert (result["nvidia"]["wanted"], result["nvidia"]["deployed"]) == (True, False)


def test_a_component_without_what_is_left_out_is_as_it_should_be(asked: list[list[str]]) -> None:
    steps = ["node", "grafana_source", "grafana"]
    record("monitoring", "node")
    node_record.leave_out("monitoring", "grafana_source", "Grafana", "cannot fetch x", ["grafana"])

    result = node_drift.compare(wanted(monitoring=steps), DIGESTS)["monitoring"]
    assert result["left_out"] == [{"what": "Grafana", "message": "cannot fetch x"}]
    assert (result["missing"], result["stale"]) == ([], [])
    # the next deploy tries it again
    assert node_drift.reasons("monitoring", DIGEST, steps)

    record("monitoring", "grafana_source")

    result = node_drift.compare(wanted(monitoring=steps), DIGESTS)["monitoring"]
    assert (result["left_out"], result["missing"]) == ([], ["grafana"])


def test_a_unit_that_still_has_to_restart_is_named(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    record("slurm", "common", units={"munge.service": True})
    node_record.mark_pending("munge.service", "/etc/munge/munge.key")
    monkeypatch.setattr(node_units, "show", lambda names: dict.fromkeys(names, RUNNING))

    result = node_drift.compare(wanted(slurm=["common"]), DIGESTS)

    assert result["slurm"]["differences"] == ["munge.service still has to restart"]


def test_dpkg_and_systemd_are_asked_once_whatever_the_number_of_records(asked: list[list[str]]) -> None:
    record("slurm", "common", packages={"munge": "1"}, units={"munge.service": True})
    record("slurm", "slurmd", packages={"slurmd": "2", "munge": "1"}, units={"slurmd.service": True})
    record("monitoring", "node", packages={"prometheus-node-exporter": "3"})

    node_drift.compare(wanted(slurm=["common", "slurmd"], monitoring=["node"]), DIGESTS)

    assert asked == [["munge", "prometheus-node-exporter", "slurmd"], ["munge.service", "slurmd.service"]]


def test_a_step_that_is_to_go_is_looked_at_until_it_has_gone(asked: list[list[str]]) -> None:
    steps = ["mounts"]
    record("storage", "mounts")
    record("storage", "nfs_exports", "older")
    assert not node_drift.reasons("storage", DIGEST, steps)

    node_record.begin("storage", "nfs_exports")

    assert [reason.partition(": ")[2] for reason in node_drift.reasons("storage", DIGEST, steps)] == ["nfs_exports"]
    assert node_drift.compare(wanted(storage=steps), DIGESTS)["storage"]["stale"] == ["nfs_exports"]

    record("storage", "nfs_exports", "")

    assert not node_drift.reasons("storage", DIGEST, steps)
    assert not node_drift.compare(wanted(storage=steps), DIGESTS)["storage"]["stale"]


@pytest.mark.parametrize(
    "leave",
    [
        lambda: record("monitoring", "node"),
        lambda: node_owned.save("monitoring", "node", {"packages": ["prometheus"]}),
    ],
    ids=["a record", "a package of ours"],
)
def test_what_is_left_of_a_component_that_is_not_wanted_is_reported(
    asked: list[list[str]], leave: Callable[[], None]
) -> None:
    not_wanted = wanted(monitoring=[])

    assert not node_drift.compare(not_wanted, DIGESTS)["monitoring"]["left"]
    leave()
    result = node_drift.compare(not_wanted, DIGESTS)["monitoring"]

    assert (result["wanted"], result["left"], result["differences"]) == (False, True, [])


STOPPED = {"ActiveState": "inactive", "UnitFileState": "enabled", "ConditionResult": "no"}


@pytest.mark.parametrize(
    ("tried_at", "differences"),
    # as systemd shows a unit that was never started, with or without conditions
    [("0", ["a.service is inactive"]), ("7347369814", [])],
)
def test_a_unit_that_nobody_has_tried_to_start_differs(tried_at: str, differences: list[str]) -> None:
    shown = {**STOPPED, "ConditionTimestampMonotonic": tried_at}

    assert node_drift.unit_differences({"a.service": True}, {"a.service": shown}, {}) == differences


@pytest.mark.parametrize(
    ("restarts", "age_s", "differences"),
    [
        (0, 1, []),
        # it was killed, and is back
        (1, 1, []),
        (2, 1, ["a.service does not stay up: systemd restarts it"]),
        # its server was away for a week, and is there again
        (40_000, 120, []),
    ],
)
def test_a_unit_that_does_not_stay_up_differs(restarts: int, age_s: int, differences: list[str]) -> None:
    since = str(int((time.monotonic() - age_s) * 1e6))
    shown = {**RUNNING, "NRestarts": str(restarts), "ActiveEnterTimestampMonotonic": since}

    assert node_drift.unit_differences({"a.service": True}, {"a.service": shown}, {}) == differences


@pytest.mark.parametrize(
    ("kind", "listens", "restarts", "age_s", "stays_up"),
    [
        ("simple", False, 0, 3, False),
        ("simple", False, 0, 6, True),
        # it has said itself that it is ready
        ("notify", False, 0, 1, False),
        ("notify", False, 0, 3, True),
        ("notify", False, 1, 6, False),
        # so has one that listens
        ("simple", True, 0, 1, False),
        ("simple", True, 0, 3, True),
        ("simple", True, 1, 6, False),
    ],
)
def test_a_unit_stays_up_once_it_has_run_for_a_while(
    kind: str, listens: bool, restarts: int, age_s: int, stays_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = nodeside.load("node.services")
    since = str(int((time.monotonic() - age_s) * 1e6))
    shown = {**RUNNING, "Type": kind, "NRestarts": str(restarts), "ActiveEnterTimestampMonotonic": since}
    monkeypatch.setattr(services, "show", lambda names: dict.fromkeys(names, shown))

    monkeypatch.setattr(services, "is_listening", lambda port: port == 6819)

    assert (services.Watch(["a.service"], {"a.service": 6819} if listens else {}).problems(-1) == {}) == stays_up


def test_a_unit_that_only_has_to_stay_up_is_queried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    services = nodeside.load("node.services")
    started = str(int((time.monotonic() - 1.9) * 1e6))
    shown = {**RUNNING, "Type": "notify", "NRestarts": "0", "ActiveEnterTimestampMonotonic": started}
    answers = [{"a.service": shown}, {"a.service": shown}]
    monkeypatch.setattr(services, "show", lambda names: answers.pop())

    assert services.Watch(["a.service"], {}).problems(10) == {}
    assert answers == []


def test_a_daemon_that_runs_and_does_not_listen_differs() -> None:
    with socket.socket() as daemon:
        daemon.bind(("127.0.0.1", 0))
        port = daemon.getsockname()[1]
        deaf = node_drift.unit_differences({"a.service": True}, {"a.service": RUNNING}, {"a.service": port})
        daemon.listen()
        heard = node_drift.unit_differences({"a.service": True}, {"a.service": RUNNING}, {"a.service": port})

    assert deaf == [f"a.service runs but does not listen on port {port}"]
    assert heard == []


def test_files_of_roles_and_of_modules_begin_with_the_same_line() -> None:
    settings = yaml.safe_load((ROOT / "group_vars" / "all" / "main.yml").read_text(encoding="utf-8"))

    assert f"# {settings['ansible_managed']}\n" == nodeside.load("node.files").HEADER
