"""A monitoring host of its own, on Debian 12: all is seen, and nothing waits for it when it is away."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.harness import PREFIX, SETTINGS, edit, wait_until
from tests.lab.monitored import MonitoredCluster, fresh_monitored
from tests.lab.smoke import validate

HOST, OTHERS = "login1", ("ctl1", "gpu01")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    """Exporters speak TLS, too: of Debian 12 they are other versions."""
    on, options = "monitoring_exporter_tls: true\n", ("--compute", "1", "--login", "1")
    with fresh_monitored(f"{PREFIX}-host", tmp_path_factory, *options, settings=on, os="debian12") as made:
        edit(made.directory / "cluster.yml", "[login]", "[login, monitoring]")
        made.deploy()
        yield made


def test_everything_is_seen_there_and_nothing_is_left_to_do(cluster: MonitoredCluster) -> None:
    assert cluster.monitoring_host() == HOST
    cluster.wait_until_up()
    cluster.wait_for("deepops_slurm_up == 1")

    result = validate(cluster, suite="monitoring")

    assert result.failed() == set(), result.shown
    assert result.code == 0, result.shown
    passed = {key for key, check in result.checks.items() if check["status"] == "pass"}
    assert {("log-arrives", name) for name in (*OTHERS, HOST)} <= passed
    assert cluster.deploy()["changes"] == []


def test_a_deploy_goes_on_for_all_others_while_it_is_down(cluster: MonitoredCluster) -> None:
    cluster.power_cut(HOST)
    # something to do on every node
    edit(cluster.directory / SETTINGS, "---\n", "---\nmonitoring_certificates: [/etc/ssl/certs/x.pem]\n")

    done = cluster.deepopsctl("deploy", "monitoring", "--json", ok=False)

    assert done.returncode == 4, done.stderr
    hosts = json.loads(done.stdout)["hosts"]
    assert hosts[HOST]["unreachable"] == 1
    for name in OTHERS:
        assert (hosts[name]["failed"], hosts[name]["changed"]) == (0, 1)
        assert cluster.holds(name, "grep -q x.pem /etc/deepopsctl/nodemetrics.json")
    # nor does one more, while senders wait for it
    again = cluster.deepopsctl("deploy", "monitoring", "--json", ok=False)
    assert again.returncode == 4, again.stderr
    assert json.loads(again.stdout)["changes"] == []


def test_logs_and_validate_name_the_host_that_is_down(cluster: MonitoredCluster) -> None:
    logs = cluster.deepopsctl("logs", "gpu01", ok=False)
    suite = validate(cluster, suite="monitoring")

    assert logs.returncode == 4
    assert f"{HOST}, which collects the journals, can't be reached" in logs.stderr
    assert suite.code == 4, suite.shown
    assert HOST in suite.shown


def test_when_it_is_back_a_deploy_finishes_and_lines_of_meanwhile_arrive(cluster: MonitoredCluster) -> None:
    cluster.root("gpu01", "logger -t meanwhile said")
    cluster.power_on(HOST)

    assert cluster.deploy()["ok"]

    cluster.wait_until_up()
    read = "journalctl -D /var/log/journal/remote -q -o cat -t meanwhile"
    wait_until("the line arrives", lambda: cluster.root(HOST, read, ok=False) == "said")
