"""Exporters by TLS on real nodes: Prometheus shows its certificate, and whoever has another is refused.

The GPU exporter is among them, without a driver: what it tells of GPUs is test_monitoring_gpu.py's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from deepopsctl.monitoring import exportertls, gpuexporters, identity, mysqldexporter, nodeexporter, validity
from deepopsctl.monitoring.pki import Authority
from tests.lab.harness import SETTINGS, edit, wait_until
from tests.lab.monitored import MonitoredCluster

# four deploys; who is answered is told without machines, too: tests/monitoring/test_exporter_tls.py
pytestmark = pytest.mark.thorough

ON = "monitoring_exporter_tls: true\n"
NO_GPUS, GPUS = "monitoring_gpu_exporter: none", "monitoring_gpu_exporter: nvitop"
ASK = "curl -s -o /dev/null -w '%{http_code}' --max-time 20"
NODE, GPU = nodeexporter.PORT, gpuexporters.PORT
# seen from the monitoring host, which has no GPUs
EXPORTERS = [("ctl1", NODE), ("ctl1", mysqldexporter.PORT), ("gpu01", NODE), ("gpu01", GPU)]
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
        if target["scrapePool"] in ("node", "mysqld", "gpu")
    }


def all_by(scheme: str) -> set[tuple[str, str]]:
    """The same, as it should be."""
    return {(name, scheme) for name in ("ctl1/node", "gpu01/node", "ctl1/mysqld", "gpu01/gpu")}


def answer(
    cluster: MonitoredCluster, node: str, asked: tuple[str, int], scheme: str = "https", shown: bool = True
) -> str:
    """What an exporter answers a node: HTTP's code, 000 for none."""
    name, port = asked
    tls = f"--cacert {exportertls.AUTHORITY}"
    tls += f" --cert {exportertls.CERTIFICATE} --key {exportertls.KEY}" if shown else ""
    return cluster.root(node, f"{ASK} {tls} {scheme}://{cluster.address(name)}:{port}/metrics", ok=False)


@pytest.fixture(scope="module")
def encrypted(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """With the setting on; off again at the end."""
    settings = monitored.directory / SETTINGS
    before = settings.read_text(encoding="utf-8")
    edit(settings, "---\n", f"---\n{ON}")
    edit(settings, NO_GPUS, GPUS)
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
    wait_until("all is asked by TLS", lambda: all_by("https") <= ways(encrypted), found=lambda: str(ways(encrypted)))
    encrypted.wait_until_up()
    assert encrypted.wait_for("mysql_up == 1")
    assert encrypted.wait_for('deepops_gpu_driver_up{node="gpu01"} == 0')


@pytest.mark.parametrize("asked", EXPORTERS, ids=lambda asked: f"{asked[0]}-{asked[1]}")
def test_nobody_but_the_monitoring_host_is_answered(encrypted: MonitoredCluster, asked: tuple[str, int]) -> None:
    assert answer(encrypted, "ctl1", asked) == "200"
    # a machine of the cluster, with a good certificate that is another's
    assert answer(encrypted, "gpu01", asked) == "000"
    assert answer(encrypted, "ctl1", asked, shown=False) == "000"
    assert answer(encrypted, "ctl1", asked, scheme="http") != "200"


def test_a_certificate_near_its_end_is_renewed_by_a_deploy_and_read_anew(encrypted: MonitoredCluster) -> None:
    address = encrypted.address("gpu01")
    made = validity.today() - timedelta(days=validity.LASTS_DAYS - 10)
    old = Authority(encrypted.secret("cluster_authority")).identify("gpu01", [address], made)
    running = "systemctl show -p ActiveEnterTimestampMonotonic --value"
    units = (nodeexporter.UNIT, f"{gpuexporters.NAME}.service")
    before = {unit: encrypted.root("gpu01", f"{running} {unit}") for unit in units}
    for certificate, key in PLACES:
        encrypted.root("gpu01", f"echo '{old.certificate}' >{certificate}; echo '{old.key}' >{key}")
    ends = f'deepops_certificate_expires_seconds{{node="gpu01", path="{identity.CERTIFICATE}"}} - time()'
    assert encrypted.wait_for(f"{ends} < {validity.LASTS_DAYS - validity.PERIOD_DAYS} * 86400")

    done = deploy(encrypted)

    written = {change["name"] for change in done["changes"] if change["host"] == "gpu01" and change["kind"] == "file"}
    assert written == {path for pair in PLACES for path in pair}
    assert encrypted.wait_for(f"{ends} > {validity.LASTS_DAYS - validity.PERIOD_DAYS} * 86400")
    after = {unit: encrypted.root("gpu01", f"{running} {unit}") for unit in units}
    # which reads its certificates once
    assert {unit for unit in units if after[unit] != before[unit]} == {f"{gpuexporters.NAME}.service"}
    encrypted.wait_until_up()


def test_it_goes_with_its_setting(encrypted: MonitoredCluster) -> None:
    edit(encrypted.directory / SETTINGS, ON, "")

    deploy(encrypted)

    wait_until("all is asked in clear", lambda: all_by("http") <= ways(encrypted), found=lambda: str(ways(encrypted)))
    encrypted.wait_until_up()
    assert encrypted.root("gpu01", f"ls {exportertls.FOLDER} 2>/dev/null; true") == ""
    assert deploy(encrypted)["changes"] == []
