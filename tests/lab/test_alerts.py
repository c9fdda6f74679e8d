"""Alerts on real nodes: one fires, reaches a receiver, drains a node, and the node is resumed when it has ended."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.integration.monitoring.test_alerts import ALERTS, metrics_of
from tests.lab.harness import SETTINGS, wait_until
from tests.lab.monitored import ALERTMANAGER, MonitoredCluster
from tests.support.paths import TESTS

WEBHOOK = TESTS / "integration" / "monitoring" / "webhook.py"
PORT, MESSAGES = 9095, "/run/webhook.messages"
AT_ONCE = {"for": "0s"}
# no rule is another one here: what is shorter is set as a site sets it
BLIND = [alert.name for alert in ALERTS if alert.blinds]
WANTED: dict[str, object] = {
    "monitoring_alerts": {**dict.fromkeys(BLIND, AT_ONCE), "NodeUnitFailed": {"for": "0s", "drain": True}},
    "alertmanager_grouping": {"wait": "1s", "interval": "1s"},
    "monitoring_drain": True,
    "monitoring_drain_limit": 1,
    "monitoring_drain_resume_after": 60,
    "monitoring_drain_interval": 5,
}
# no GPU, no storage, no backup, no second controller, no job that was started yet; certificates where logs are sent
NOT_HERE = {
    "deepops_backup_failed", "deepops_backup_last_good_timestamp_seconds",
    "deepops_certificate_expires_seconds", "deepops_certificate_readable", "deepops_mount",
    "deepops_slurm_controller_up", "deepops_slurm_in_control", "deepops_slurm_queue_wait_seconds",
    "gpu:ecc_uncorrected:total", "gpu:present:bool",
    "gpu:recovery_action:code", "gpu:row_remap_pending:bool", "gpu:slices:count", "gpu:throttled:bool", "gpu:xid:last",
}  # fmt: skip
REASON = "deepopsctl: alert NodeUnitFailed"
UNIT = "deepops-trial"


@pytest.fixture(scope="module")
def cluster(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """With drain by alert on, and a receiver on the controller; all of it gone at the end."""
    program = base64.b64encode(WEBHOOK.read_bytes()).decode()
    address, settings = monitored.address("ctl1"), monitored.directory / SETTINGS
    monitored.root("ctl1", f"echo {program} | base64 -d >/run/webhook.py; : >{MESSAGES}")
    monitored.root(
        "ctl1",
        "systemd-run --quiet --unit=webhook python3 /run/webhook.py"
        f" --address {address} --port {PORT} --file {MESSAGES}",
    )
    hook = {"hook": {"webhook": {"url": f"http://{address}:{PORT}/"}}}
    before = settings.read_text(encoding="utf-8")
    settings.write_text(before + yaml.safe_dump({**WANTED, "alertmanager_receivers": hook}), encoding="utf-8")
    monitored.parsed("deploy", "monitoring")
    try:
        yield monitored
    finally:
        settings.write_text(before, encoding="utf-8")
        monitored.root("gpu01", f"systemctl reset-failed {UNIT}; systemctl start prometheus-node-exporter", ok=False)
        monitored.parsed("deploy", "monitoring")
        monitored.root("ctl1", f"systemctl stop webhook; rm -f /run/webhook.py {MESSAGES}", ok=False)
        monitored.root("ctl1", "scontrol update nodename=gpu01 state=undrain", ok=False)


def delivered(cluster: MonitoredCluster) -> set[tuple[str, str, str]]:
    """Name, node and status of every alert that reached the receiver."""
    messages = [json.loads(line) for line in cluster.root("ctl1", f"cat {MESSAGES}").splitlines()]
    return {
        (alert["labels"]["alertname"], alert["labels"].get("node", ""), alert["status"])
        for message in messages
        for alert in message["alerts"]
    }


def node(cluster: MonitoredCluster) -> str:
    """State and reason of the node, as Slurm has it."""
    return cluster.root("ctl1", "scontrol --oneliner show node gpu01 | grep -oE ' (State|Reason)=.*'")


def figure(cluster: MonitoredCluster, name: str) -> str:
    """The program's own metrics, '' before there are any."""
    text = "cat /var/lib/prometheus/node-exporter/alertdrain.prom"
    return cluster.root("ctl1", f"{text} | sed -n 's/^deepops_alertdrain_{name} //p'", ok=False)


def words(cluster: MonitoredCluster) -> str:
    """For a test that waits in vain."""
    alerts: Any = cluster.ask("/api/v2/alerts", ALERTMANAGER)
    firing = [each["labels"] for each in alerts]
    return f"{firing} {node(cluster)} {cluster.root('ctl1', 'journalctl -u deepops-alertdrain | tail -20')}"


def test_an_alert_that_fires_is_sent_and_drains_its_node_until_it_has_really_ended(cluster: MonitoredCluster) -> None:
    wait_until("the program knows of no trouble", lambda: figure(cluster, "up") == "1", details=lambda: words(cluster))
    cluster.root("gpu01", f"systemd-run --quiet --unit={UNIT} false")

    wait_until(
        "the receiver is notified, and the node is drained",
        lambda: ("NodeUnitFailed", "gpu01", "firing") in delivered(cluster) and REASON in node(cluster),
        details=lambda: f"{delivered(cluster)} {words(cluster)}",
    )
    assert figure(cluster, "drained") == "1"

    # missing data about the failure does not mean that it has ended
    cluster.root("gpu01", "systemctl stop prometheus-node-exporter")
    wait_until(
        "missing data is reported as that",
        lambda: ("NodeMetricsMissing", "gpu01", "firing") in delivered(cluster),
        details=lambda: f"{delivered(cluster)} {words(cluster)}",
    )
    wait_until(
        "the program logs what it waits for",
        lambda: "NodeMetricsMissing fires" in cluster.root("ctl1", "journalctl -u deepops-alertdrain"),
        details=lambda: words(cluster),
    )
    assert "DRAIN" in node(cluster)
    # planned, as the alert about drains that are not sees it
    assert cluster.wait_for(f'deepops_slurm_node_drain{{node="gpu01", by="root", reason="{REASON}"}}')

    cluster.root("gpu01", f"systemctl reset-failed {UNIT}; systemctl start prometheus-node-exporter")
    # an Alertmanager that does not answer is not one without alerts
    cluster.root("ctl1", "systemctl kill --signal=STOP prometheus-alertmanager")
    try:
        wait_until("no node answers", lambda: figure(cluster, "up") == "0", details=lambda: words(cluster))
        assert "DRAIN" in node(cluster)
    finally:
        cluster.root("ctl1", "systemctl kill --signal=CONT prometheus-alertmanager")

    wait_until("the node is resumed", lambda: "DRAIN" not in node(cluster), details=lambda: words(cluster))
    assert "resumed gpu01: its alert has ended" in cluster.root("ctl1", "journalctl -u deepops-alertdrain")
    assert ("NodeUnitFailed", "gpu01", "resolved") in delivered(cluster)


def test_everything_that_alerts_query_is_really_exported(cluster: MonitoredCluster) -> None:
    wanted = {name for alert in ALERTS for name in metrics_of(alert.expr)} - NOT_HERE

    def missing() -> list[str]:
        return sorted(wanted - set(cluster.ask("/api/v1/label/__name__/values")["data"]))

    # there is no such series while no node is down
    cluster.deepopsctl("node", "drain", "gpu01", "--reason", "a new fan")
    try:
        assert cluster.wait_for('node:away_as_planned:bool{node="gpu01"} == 1')
        wait_until("all of it is known", lambda: not missing(), details=lambda: str(missing()))
    finally:
        cluster.deepopsctl("node", "resume", "gpu01")
