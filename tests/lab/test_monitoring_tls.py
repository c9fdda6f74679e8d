"""Exporters by TLS on real nodes: Prometheus shows its certificate, and whoever has another is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from deepopsctl.monitoring import exportertls, identity, validity
from deepopsctl.monitoring.pki import Authority
from tests.lab.harness import SETTINGS, edit, wait_until
from tests.lab.monitored import MonitoredCluster

# four deploys; who is answered is told without machines, too: tests/monitoring/test_exporter_tls.py
pytestmark = pytest.mark.thorough

ON = "monitoring_exporter_tls: true\n"
ASK = "curl -s -o /dev/null -w '%{http_code}' --max-time 20"
PLACES = ((identity.CERTIFICATE, identity.KEY), (exportertls.CERTIFICATE, exportertls.KEY))


def deploy(cluster: MonitoredCluster) -> dict[str, Any]:
    """Deploy monitoring, parsed."""
    document: dict[str, Any] = json.loads(cluster.deepopsctl("deploy", "monitoring", "--json").stdout)
    return document


def ways(cluster: MonitoredCluster) -> set[tuple[str, str]]:
    """Node and scheme of all that speaks TLS where it is on."""
    targets = cluster.ask("/api/v1/targets", state="active")["data"]["activeTargets"]
    return {
        (f"{target['labels']['node']}/{target['scrapePool']}", target["scrapeUrl"].partition(":")[0])
        for target in targets
        if target["scrapePool"] in ("node", "mysqld")
    }


def answer(cluster: MonitoredCluster, node: str, scheme: str = "https", shown: bool = True) -> str:
    """What ctl1's node exporter answers a node: HTTP's code, 000 for none."""
    tls = f"--cacert {exportertls.AUTHORITY}"
    tls += f" --cert {exportertls.CERTIFICATE} --key {exportertls.KEY}" if shown else ""
    return cluster.root(node, f"{ASK} {tls} {scheme}://{cluster.address('ctl1')}:9100/metrics", ok=False)


@pytest.fixture(scope="module")
def encrypted(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """With the setting on; off again at the end."""
    settings = monitored.directory / SETTINGS
    before = settings.read_text(encoding="utf-8")
    edit(settings, "---\n", f"---\n{ON}")
    for node in ("ctl1", "gpu01"):
        monitored.root(node, "command -v curl || apt-get install -qq --no-install-recommends curl")
    deploy(monitored)
    try:
        yield monitored
    finally:
        if settings.read_text(encoding="utf-8") != before:
            settings.write_text(before, encoding="utf-8")
            deploy(monitored)


def test_prometheus_asks_by_tls_and_is_answered(encrypted: MonitoredCluster) -> None:
    wanted = {("ctl1/node", "https"), ("gpu01/node", "https"), ("ctl1/mysqld", "https")}

    wait_until("all is asked by TLS", lambda: wanted <= ways(encrypted), found=lambda: str(ways(encrypted)))
    encrypted.wait_until_up()
    assert encrypted.wait_for("mysql_up == 1")


def test_nobody_but_the_monitoring_host_is_answered(encrypted: MonitoredCluster) -> None:
    assert answer(encrypted, "ctl1") == "200"
    # a machine of the cluster, with a good certificate that is another's
    assert answer(encrypted, "gpu01") == "000"
    assert answer(encrypted, "ctl1", shown=False) == "000"
    assert answer(encrypted, "ctl1", scheme="http") == "400"


def test_a_certificate_near_its_end_is_renewed_by_a_deploy_without_a_restart(encrypted: MonitoredCluster) -> None:
    address = encrypted.address("gpu01")
    made = validity.today() - timedelta(days=validity.LASTS_DAYS - 10)
    old = Authority(encrypted.secret("cluster_authority")).identify("gpu01", [address], made)
    running = "systemctl show -p ActiveEnterTimestampMonotonic --value prometheus-node-exporter"
    before = encrypted.root("gpu01", running)
    for certificate, key in PLACES:
        encrypted.root("gpu01", f"echo '{old.certificate}' >{certificate}; echo '{old.key}' >{key}")
    ends = f'deepops_certificate_expires_seconds{{node="gpu01", path="{identity.CERTIFICATE}"}} - time()'
    assert encrypted.wait_for(f"{ends} < {validity.LASTS_DAYS - validity.PERIOD_DAYS} * 86400")

    done = deploy(encrypted)

    written = {change["name"] for change in done["changes"] if change["host"] == "gpu01" and change["kind"] == "file"}
    assert written == {path for pair in PLACES for path in pair}
    assert encrypted.wait_for(f"{ends} > {validity.LASTS_DAYS - validity.PERIOD_DAYS} * 86400")
    assert encrypted.root("gpu01", running) == before
    encrypted.wait_until_up()


def test_it_goes_with_its_setting(encrypted: MonitoredCluster) -> None:
    edit(encrypted.directory / SETTINGS, ON, "")

    deploy(encrypted)

    wanted = {("ctl1/node", "http"), ("gpu01/node", "http"), ("ctl1/mysqld", "http")}
    wait_until("all is asked in clear", lambda: wanted <= ways(encrypted), found=lambda: str(ways(encrypted)))
    encrypted.wait_until_up()
    assert encrypted.root("gpu01", f"ls {exportertls.FOLDER} 2>/dev/null; true") == ""
    assert deploy(encrypted)["changes"] == []
