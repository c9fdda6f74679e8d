"""Monitoring on real nodes: Prometheus asks every exporter, no other host can, and a second deploy changes nothing."""

from __future__ import annotations

import base64
import json

import pytest

from tests.lab.harness import SETTINGS, changes, edit, wait_until
from tests.lab.monitored import ALERTMANAGER, PROMETHEUS, MonitoredCluster
from tests.support.budget import BUDGET, cost

SERVERS = ("prometheus.service", "prometheus-alertmanager.service")
RULES = "/etc/prometheus/rules"


def started(cluster: MonitoredCluster) -> list[str]:
    """When the servers were last started."""
    show = "systemctl show -p ActiveEnterTimestampMonotonic --value"
    return [cluster.root("ctl1", f"{show} {unit}") for unit in SERVERS]


def loaded(cluster: MonitoredCluster) -> set[str]:
    """Names of the files whose rules Prometheus follows."""
    groups = cluster.ask("/api/v1/rules")["data"]["groups"]
    return {group["file"].rpartition("/")[2] for group in groups}


@pytest.mark.every_change
def test_everything_that_listens_is_scraped(monitored: MonitoredCluster) -> None:
    monitored.wait_until_up()

    scraped = {(sample["metric"]["job"], sample["metric"]["node"]) for sample in monitored.query("up == 1")}
    assert scraped >= {
        ("node", "ctl1"),
        ("node", "gpu01"),
        ("mysqld", "ctl1"),
        ("prometheus", "ctl1"),
        ("alertmanager", "ctl1"),
    }
    assert monitored.wait_for("mysql_up == 1")
    assert monitored.wait_for('node_systemd_unit_state{node="gpu01", name="slurmd.service", state="active"} == 1')


@pytest.mark.every_change
def test_a_second_deploy_changes_nothing(monitored: MonitoredCluster) -> None:
    assert monitored.parsed("plan", "monitoring")["changes"] == []
    again = monitored.deploy()
    assert set(monitored.changed(again).values()) == {0}
    # tests before these may have added a node
    assert cost(again).items() >= BUDGET["two_components"]["unchanged"].items()
    # checked in full, too
    full = monitored.deploy("--full")
    assert set(monitored.changed(full).values()) == {0}
    assert cost(full).items() >= BUDGET["two_components"]["full"].items()


def test_status_reports_which_component_was_changed_manually(monitored: MonitoredCluster) -> None:
    monitored.root("gpu01", "systemctl stop prometheus-node-exporter")
    try:
        done = monitored.deepopsctl("status", "--json", "--node-timeout", "120", ok=False)
    finally:
        monitored.root("gpu01", "systemctl start prometheus-node-exporter")
    document = json.loads(done.stdout)

    assert document["components"]["monitoring"]["drifted"] == "gpu01"
    assert "drifted" not in document["components"]["slurm"]
    gpu01 = next(node for node in document["nodes"] if node["name"] == "gpu01")
    assert gpu01["components"]["monitoring"]["differences"] == ["prometheus-node-exporter.service is inactive"]
    assert (done.returncode, gpu01["deploy"]) == (1, "drifted")


def test_exporters_listen_on_the_nodes_own_address_alone(monitored: MonitoredCluster) -> None:
    for name in ("ctl1", "gpu01"):
        listening = monitored.root(name, "ss -Hltn | awk '{print $4}'").split()
        exporters = [place for place in listening if 9000 <= int(place.rpartition(":")[2]) < 10000]
        assert exporters
        assert {place.rpartition(":")[0] for place in exporters} == {monitored.address(name)}


@pytest.mark.every_change
@pytest.mark.parametrize("port", [PROMETHEUS, ALERTMANAGER])
def test_nobody_sees_a_page_without_the_password(monitored: MonitoredCluster, port: int) -> None:
    assert monitored.status(port) == 401
    assert monitored.status(port, password="not-the-password") == 401
    assert monitored.status(port, password=monitored.password()) == 200


@pytest.mark.every_change
def test_the_password_is_nowhere_that_others_can_read(monitored: MonitoredCluster) -> None:
    password = monitored.password()
    search = f"grep -rlF -e '{password}' /etc /var/lib/prometheus /var/lib/deepopsctl; true"
    held = monitored.root("ctl1", search).split()

    modes = {path: monitored.root("ctl1", f"stat -c '%a %U:%G' {path}") for path in held}
    assert modes.pop("/etc/prometheus/deepops-password") == "640 root:prometheus"
    # of deepopsctl's programs that query
    assert set(modes.values()) == {"600 root:root"}
    # as it is, and as modules get it
    written = f"-e '{password}' -e '{base64.b64encode(password.encode()).decode()}'"
    assert monitored.root("ctl1", f"journalctl --no-pager | grep -cF {written}; true") == "0"
    runs = [path.read_bytes() for path in (monitored.directory / "runs").rglob("*") if path.is_file()]
    assert runs
    assert not any(password.encode() in content for content in runs)


def test_new_passwords_of_the_pages_are_in_force_and_the_old_ones_are_not(monitored: MonitoredCluster) -> None:
    old = monitored.password()
    since = "systemctl show --property=ActiveEnterTimestamp slurmctld"
    before = monitored.root("ctl1", since)

    monitored.deepopsctl("secrets", "rotate", "monitoring-passwords", "--yes")

    assert monitored.password() != old
    assert [monitored.status(PROMETHEUS, password=word) for word in (old, monitored.password())] == [401, 200]
    assert monitored.root("ctl1", since) == before
    assert set(monitored.changed(monitored.deploy()).values()) == {0}


def test_the_exporter_of_mariadb_may_read_no_data(monitored: MonitoredCluster) -> None:
    grants = monitored.root("ctl1", "mariadb -BN -e \"SHOW GRANTS FOR 'prometheus'@'localhost'\"").splitlines()

    assert len(grants) == 1
    assert grants[0].startswith("GRANT USAGE ON *.* TO")


def test_a_rule_that_was_changed_manually_is_restored_without_a_restart(monitored: MonitoredCluster) -> None:
    rules = sorted(monitored.root("ctl1", f"ls {RULES}").split())
    before = started(monitored)
    monitored.root("ctl1", f"echo 'groups: []' >{RULES}/{rules[0]}; echo 'groups: []' >{RULES}/mine.yml")

    done = changes(monitored.parsed("deploy", "monitoring"))

    assert done == {
        ("ctl1", "file", f"{RULES}/{rules[0]}", "write"),
        ("ctl1", "unit", "prometheus.service", "reload"),
    }
    assert started(monitored) == before
    wait_until(
        "the rule is in force again", lambda: loaded(monitored) == set(rules), details=lambda: str(loaded(monitored))
    )
    monitored.root("ctl1", f"rm {RULES}/mine.yml")


def test_switching_monitoring_off_removes_all_of_it_but_the_history(monitored_no_more: MonitoredCluster) -> None:
    cluster = monitored_no_more
    edit(cluster.directory / SETTINGS, "monitoring_enabled: true", "monitoring_enabled: false")
    planned = changes(cluster.parsed("plan", "monitoring"))

    assert changes(cluster.parsed("deploy", "monitoring")) == planned
    assert cluster.parsed("deploy", "monitoring")["changes"] == []
    for name in ("ctl1", "gpu01"):
        units = "/etc/systemd/system/*prometheus* /etc/systemd/system/deepops-* /usr/local/lib/deepopsctl/nvitop-*"
        left = f"dpkg-query -W -f '${{Package}}\\n' 'prometheus*'; ls -d {units}"
        assert cluster.root(name, f"({left}) 2>/dev/null; ss -Hltn | grep -E ':9[0-9]{{3}} '; true") == ""
    assert cluster.holds("ctl1", "ls /var/lib/prometheus/deepops/wal/*")
    # root's programs write below it
    assert cluster.root("ctl1", "stat -c %U:%G /var/lib/prometheus") == "root:root"
    assert cluster.root("ctl1", "mariadb -BN -e \"SELECT user FROM mysql.user WHERE user = 'prometheus'\"") == ""
