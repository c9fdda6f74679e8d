"""Nodes come to a cluster that is watched, and leave it: one in order, one by its death."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from deepopsctl.monitoring.targets import FILE as TARGETS_FILE
from deepopsctl.node_programs.services.log_collector.places import address_of
from tests.lab.harness import lab_up, wait_until
from tests.lab.monitored import ALERTMANAGER, MonitoredCluster
from tests.lab.test_logs import KNOCK, wait_for_lines
from tests.lab.test_monitoring import started

MEMBERS = "/etc/deepopsctl/logs-members"
ALL = ("ctl1", "gpu01", "gpu02", "gpu03")
ALERTING = "prometheus-alertmanager.service"
IDENTITY = "/etc/deepopsctl/pki/node.crt /etc/deepopsctl/pki/node.key"


@dataclass(frozen=True)
class Grown:
    """The cluster with two nodes more, when its servers were started before, and the output of `node add`."""

    cluster: MonitoredCluster
    before: list[str]
    added: dict[str, Any]


@pytest.fixture(scope="module")
def grown(monitored: MonitoredCluster) -> Iterator[Grown]:
    before = started(monitored)
    lab = lab_up(monitored.name, "--compute", "3")
    address = {node["name"]: node["address"] for node in lab["nodes"]}
    login = ("--password-file", str(monitored.password_file))
    network, _, last = address["gpu02"].rpartition(".")
    names = f"gpu[02-03]={network}.[{last}-{address['gpu03'].rpartition('.')[2]}]"
    # what watches the nodes can't be deployed just now: that is not a reason not to put them into service
    monitored.root("ctl1", f"systemctl mask --quiet {ALERTING}")
    try:
        done = monitored.deepopsctl("node", "add", names, "--yes", "--json", *login, ok=False)
    finally:
        monitored.root("ctl1", f"systemctl unmask --quiet {ALERTING}")
    monitored.deploy()
    yield Grown(monitored, before, json.loads(done.stdout))
    # what is left of it knows the cluster's names, and is not a node of it
    for name in ("gpu02", "gpu03"):
        monitored.power_cut(name)


def test_a_monitoring_host_that_fails_blocks_no_node_from_service(grown: Grown) -> None:
    assert not grown.added["ok"]
    assert {(failure["host"], failure["component"]) for failure in grown.added["failures"]} == {("ctl1", "monitoring")}
    assert "stopped" not in grown.added
    assert {check["status"] for check in grown.added["checks"]} <= {"pass", "skip", "warn"}
    assert {grown.cluster.node_state(node) for node in ("gpu02", "gpu03")} == {"idle"}


def test_added_nodes_are_lines_on_one_host(grown: Grown) -> None:
    assert set(grown.added["hosts"]) == {"ctl1", "gpu02", "gpu03"}
    for name in ("gpu02", "gpu03"):
        assert grown.cluster.wait_for(f'up{{job="node", node="{name}"}} == 1')
    assert started(grown.cluster) == grown.before


def test_each_of_four_senders_has_a_file_of_its_own(grown: Grown) -> None:
    for name in ALL:
        grown.cluster.root(name, f"logger -t sender from {name}")
    wait_for_lines(grown.cluster, "-t sender", {f"from {name}" for name in ALL})

    for name in ALL:
        file = f"/var/log/journal/remote/remote-{address_of(name)}.journal"
        held = grown.cluster.root("ctl1", f"journalctl --file {file} -q -o cat -t sender")
        assert set(held.splitlines()) == {f"from {name}"}


def test_of_two_nodes_that_are_down_the_drained_one_sends_no_alert(grown: Grown) -> None:
    cluster = grown.cluster
    cluster.deepopsctl("node", "drain", "gpu02", "--reason", "new fan")
    assert cluster.wait_for('node:away_as_planned:bool{node="gpu02"} == 1')
    for name in ("gpu02", "gpu03"):
        cluster.power_cut(name)
    for name in ("gpu02", "gpu03"):
        assert cluster.wait_for(f'deepops_slurm_node_state{{node="{name}", state="not_responding"}} == 1')

    assert cluster.wait_for('ALERTS{alertname="NodeDown", node="gpu03", alertstate="firing"}')

    assert cluster.query('up{job="node", node="gpu02"} == 0')
    assert not cluster.query('max_over_time(ALERTS{alertname="NodeDown", node="gpu02"}[15m])')
    for name in ("gpu02", "gpu03"):
        cluster.power_on(name)
    for name in ("gpu02", "gpu03"):
        assert cluster.wait_for(f'up{{job="node", node="{name}"}} == 1')


def test_of_nodes_that_left_nothing_is_watched_and_no_alert_goes_on(grown: Grown) -> None:
    cluster = grown.cluster
    cluster.power_cut("gpu03")
    # at first NodeMetricsMissing: Slurm has not noticed yet
    cluster.wait_for('ALERTS{node="gpu03"}')

    done = cluster.deepopsctl("node", "remove", "gpu[02-03]", "--yes", "--force", "--json")

    assert "gpu03" in str(json.loads(done.stdout)["warnings"])
    assert started(cluster) == grown.before
    assert cluster.root("ctl1", f"grep -cE 'gpu0[23]' {TARGETS_FILE} {MEMBERS}; true").split() == [
        f"{TARGETS_FILE}:0",
        f"{MEMBERS}:0",
    ]
    query = '{__name__=~"up|ALERTS|deepops_slurm_node_state", node=~"gpu0[23]"}'
    wait_until("Prometheus has none of it", lambda: not cluster.query(query), details=lambda: str(cluster.query(query)))

    def active_alerts() -> list[dict[str, str]]:
        alerts = cluster.ask("/api/v2/alerts", ALERTMANAGER)
        return [each["labels"] for each in alerts if each["labels"].get("node") in ("gpu02", "gpu03")]

    wait_until("Alertmanager has none of it", lambda: not active_alerts(), details=lambda: str(active_alerts()))


def test_a_node_that_left_in_order_has_no_more_of_it(grown: Grown) -> None:
    units = "/etc/systemd/system/*prometheus* /etc/systemd/system/deepops-*metrics*"
    managed_paths = f"{units} /usr/local/sbin/deepops-*metrics /etc/deepopsctl/pki/*"
    left = f"dpkg-query -W -f '${{Package}}\\n' 'prometheus*'; ls -d {managed_paths}"

    assert grown.cluster.root("gpu02", f"({left}) 2>/dev/null; ss -Hltn | grep -E ':9[0-9]{{3}} '; true") == ""


def test_a_node_that_left_with_its_certificate_is_refused_and_its_logs_stay(grown: Grown) -> None:
    cluster = grown.cluster
    cluster.power_on("gpu03")
    wait_until("it has its address", lambda: cluster.holds("gpu03", f"ip addr | grep -F {address(cluster)[:-2]}"))

    answer = cluster.root("gpu03", f"python3 -c '{KNOCK}' {cluster.address('ctl1')} {IDENTITY}")

    # the same certificate was good before
    assert answer.startswith(("refused", "closed"))
    refusals = cluster.root("ctl1", "journalctl -q -o cat -u deepops-logs | grep -F 'it is not a node of this cluster'")
    assert refusals.startswith("gpu03 (")
    wait_for_lines(cluster, "_HOSTNAME=gpu03 -t sender", {"from gpu03"})


def address(cluster: MonitoredCluster) -> str:
    """The controller's, in whose network all are."""
    return cluster.address("ctl1")
