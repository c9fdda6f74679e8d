"""`validate monitoring` on the monitored cluster: it passes, and names what has stopped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, edit
from tests.lab.monitored import ALERTMANAGER, MonitoredCluster
from tests.lab.smoke import Result, damaged, validate
from tests.support.cluster import wait_until

# no waiting for what will never be seen
QUICK = "validate_monitoring_patience: 45\n"


@pytest.fixture
def impatient(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """The cluster, with a short timeout of the suite."""
    settings = monitored.directory / SETTINGS
    edit(settings, "---\n", f"---\n{QUICK}")
    yield monitored
    edit(settings, QUICK, "")


def suite(cluster: MonitoredCluster, *arguments: str) -> Result:
    return validate(cluster, *arguments, suite="monitoring")


def test_a_cluster_that_is_watched_passes_and_nothing_is_left(monitored: MonitoredCluster) -> None:
    monitored.wait_until_up()
    monitored.wait_for("deepops_slurm_up == 1")
    result = suite(monitored)

    assert result.code == 0, result.shown
    passed = {key for key, check in result.checks.items() if check["status"] == "pass"}
    for name in ("slurm-metrics", "slurm-nodes-agree", "slurm-jobs-agree", "alert-arrives"):
        assert (name, monitored.name) in passed, result.shown
    for node in ("ctl1", "gpu01"):
        wanted = {("target-up", f"{node}/node"), ("log-arrives", node), ("textfiles-fresh", node)}
        assert wanted | {("clock-monitoring", node)} <= passed, result.shown
    assert ("job-metrics", "gpu01") in passed
    assert {target for name, target in passed if name == "web-closed"} == {"prometheus", "alertmanager"}
    assert monitored.root("ctl1", "squeue -h -o %j | grep deepopsctl-monitoring; exit 0") == ""
    assert "DeepopsctlValidation" not in str(monitored.ask("/api/v2/alerts", ALERTMANAGER))
    runs = [path.read_bytes() for path in (monitored.directory / "runs" / result.run).rglob("*") if path.is_file()]
    assert runs
    assert not any(monitored.password().encode() in content for content in runs)


def test_what_has_stopped_is_named_and_nothing_else(impatient: MonitoredCluster) -> None:
    units = "prometheus-node-exporter systemd-journal-upload"
    with damaged(
        impatient,
        ("gpu01", f"systemctl stop {units}", f"systemctl start {units}"),
        ("ctl1", "systemctl stop deepops-slurmmetrics", "systemctl start deepops-slurmmetrics"),
    ):
        result = suite(impatient, "--limit", "ctl1,gpu01")
    up = 'up{job="node", node="gpu01"} == 1 and on () deepops_slurm_up == 1'
    wait_until("all is seen again", lambda: impatient.query(up), details=lambda: str(impatient.query("up")))

    assert result.code == 1, result.shown
    failed = {(name, target) for name, target in result.failed() if name != "dashboard-queries"}
    assert failed == {
        ("target-up", "gpu01/node"),
        ("job-metrics", "gpu01"),
        ("log-arrives", "gpu01"),
        ("textfiles-fresh", "ctl1"),
        ("slurm-metrics", impatient.name),
    }, result.shown
    assert impatient.address("gpu01") in result.message("target-up", "gpu01/node")
    assert "slurmmetrics.prom is not there" in result.message("textfiles-fresh", "ctl1")
