"""Exporters by TLS on real nodes: Prometheus shows its certificate, and a client with another is refused.

Who is accepted as a node's exporter, and what it may export: tests/integration/monitoring/test_hostile_exporter.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority
from deepopsctl.errors import ExitCode
from deepopsctl.monitoring import ports
from deepopsctl.monitoring.collectors import OF_EXPORTERS, OF_LOGS, OF_SCRAPER
from tests.lab.harness import SETTINGS, edit, wait_until
from tests.lab.monitored import MonitoredCluster

OFF = "monitoring_exporter_tls: false\n"
NO_GPUS, GPUS = "monitoring_gpu_exporter: none", "monitoring_gpu_exporter: nvitop"
NODE, GPU, MYSQLD = (ports.default(name) for name in ("node", "nvitop", "mysqld"))
UNIT, GPU_UNIT = "prometheus-node-exporter.service", "deepops-gpumetrics.service"
TEXTFILES = "/var/lib/prometheus/node-exporter"
AUTHORITY, CERTIFICATE = OF_EXPORTERS
KEY = CERTIFICATE.replace(".crt", ".key")
# what the monitoring host shows, and any other node can
SHOWN = {"ctl1": (OF_SCRAPER, OF_SCRAPER.replace(".crt", ".key")), "gpu01": (CERTIFICATE, KEY)}
EXPORTERS = [("ctl1", NODE), ("ctl1", MYSQLD), ("gpu01", NODE)]
# the status of a page, 000 for none: URL, and files of an authority, a certificate and its key
ASK = """\
import http.client, ssl, sys, urllib.parse
url, files = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2:]
context = ssl.create_default_context(cafile=files[0] if files else None)
if files[1:]:
    context.load_cert_chain(*files[1:])
tls = {"context": context} if url.scheme == "https" else {}
asked = (http.client.HTTPSConnection if tls else http.client.HTTPConnection)(url.netloc, timeout=20, **tls)
try:
    asked.request("GET", url.path)
    print(asked.getresponse().status)
except OSError:
    print("000")
"""
PLACES = ((OF_LOGS[1], OF_LOGS[1].replace(".crt", ".key")), (CERTIFICATE, KEY))


def schemes(cluster: MonitoredCluster) -> dict[str, str]:
    """By what each exporter that can speak TLS is asked, by node and job."""
    targets = cluster.ask("/api/v1/targets", state="active")["data"]["activeTargets"]
    return {
        f"{target['labels']['node']}/{target['labels']['job']}": target["scrapeUrl"].partition(":")[0]
        for target in targets
        if target["labels"]["job"] in ("node", "mysqld", "gpu")
    }


def asked_by(scheme: str, *names: str) -> dict[str, str]:
    """The same, as it should be."""
    return dict.fromkeys(names or ("ctl1/node", "gpu01/node", "ctl1/mysqld"), scheme)


def wait_for_schemes(cluster: MonitoredCluster, wanted: dict[str, str]) -> None:
    """Until each is asked so and answers."""
    wait_until(
        f"exporters are asked by {wanted}",
        lambda: wanted.items() <= schemes(cluster).items(),
        details=lambda: str(schemes(cluster)),
    )
    cluster.wait_until_up()


def answer(
    cluster: MonitoredCluster, node: str, asked: tuple[str, int], scheme: str = "https", shown: bool = True
) -> str:
    """What an exporter answers a node: HTTP's code, 000 for none."""
    name, port = asked
    files = [AUTHORITY, *(SHOWN[node] if shown else ())]
    url = f"{scheme}://{cluster.address(name)}:{port}/metrics"
    return cluster.root(node, f"python3 - {url} {' '.join(files)} <<'END'\n{ASK}END")


@pytest.mark.parametrize("asked", EXPORTERS, ids=lambda asked: f"{asked[0]}-{asked[1]}")
def test_nobody_but_the_monitoring_host_is_answered(monitored: MonitoredCluster, asked: tuple[str, int]) -> None:
    assert answer(monitored, "ctl1", asked) == "200"
    # a node of the cluster, with a valid certificate that is another's
    assert answer(monitored, "gpu01", asked) == "000"
    assert answer(monitored, "ctl1", asked, shown=False) == "000"
    assert answer(monitored, "ctl1", asked, scheme="http") != "200"


def test_a_job_that_has_an_exporters_port_is_not_accepted_as_its_node(monitored: MonitoredCluster) -> None:
    """The exporter is killed, and a user's process is there first."""
    listens = f"python3 -m http.server --bind {monitored.address('gpu01')} {NODE}"
    hostile = f"systemctl stop {UNIT}; systemd-run --quiet --uid=ubuntu --unit=hostile {listens}"
    monitored.wait_until_up()
    try:
        monitored.root("gpu01", hostile)

        wait_until("it is down", lambda: ("node", "gpu01") in monitored.down(), details=lambda: str(monitored.down()))
        wait_until(
            "its answer was refused",
            lambda: "tls: " in monitored.down()["node", "gpu01"],
            details=lambda: str(monitored.down()),
        )
    finally:
        monitored.root("gpu01", f"systemctl stop hostile; systemctl start {UNIT}")
    monitored.wait_until_up()


def test_users_read_nothing_of_others_jobs_from_a_nodes_files(monitored: MonitoredCluster) -> None:
    files = f"{TEXTFILES}/*.prom /run/deepops-slurmmetrics/* /run/deepops/jobs/*"

    for node in ("ctl1", "gpu01"):
        assert monitored.root(node, f"runuser -u nobody -- sh -c 'cat {files} 2>/dev/null' | wc -l") == "0"
    assert monitored.wait_for('deepops_slurm_node_state{node="gpu01"}')


@pytest.fixture(scope="module")
def with_gpus(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """With an exporter of GPUs, which a lab has none of by itself."""
    settings = monitored.directory / SETTINGS
    before = settings.read_text(encoding="utf-8")
    edit(settings, NO_GPUS, GPUS)
    monitored.parsed("deploy", "monitoring")
    try:
        yield monitored
    finally:
        settings.write_text(before, encoding="utf-8")
        monitored.parsed("deploy", "monitoring")


def test_the_exporter_of_gpus_speaks_tls_as_well(with_gpus: MonitoredCluster) -> None:
    wait_for_schemes(with_gpus, asked_by("https", "gpu01/gpu"))
    assert with_gpus.wait_for('deepops_gpu_driver_up{node="gpu01"} == 0')

    assert answer(with_gpus, "ctl1", ("gpu01", GPU)) == "200"
    assert answer(with_gpus, "gpu01", ("gpu01", GPU)) == "000"


def test_a_certificate_near_its_end_is_renewed_by_a_deploy_and_reloaded(with_gpus: MonitoredCluster) -> None:
    address = with_gpus.address("gpu01")
    made = validity.today() - timedelta(days=validity.LASTS_DAYS - 10)
    old = Authority(with_gpus.secret("cluster_authority")).identify("gpu01", [address], made)
    running = "systemctl show -p ActiveEnterTimestampMonotonic --value"
    units = (UNIT, GPU_UNIT)
    before = {unit: with_gpus.root("gpu01", f"{running} {unit}") for unit in units}
    for certificate, key in PLACES:
        with_gpus.root("gpu01", f"echo '{old.certificate}' >{certificate}; echo '{old.key}' >{key}")
    ends = f'deepops_certificate_expires_seconds{{node="gpu01", path="{OF_LOGS[1]}"}} - time()'
    assert with_gpus.wait_for(f"{ends} < {validity.LASTS_DAYS - validity.PERIOD_DAYS} * 86400")

    done = with_gpus.parsed("deploy", "monitoring")

    written = {change["name"] for change in done["changes"] if change["host"] == "gpu01" and change["kind"] == "file"}
    assert written == {path for pair in PLACES for path in pair}
    assert with_gpus.wait_for(f"{ends} > {validity.LASTS_DAYS - validity.PERIOD_DAYS} * 86400")
    after = {unit: with_gpus.root("gpu01", f"{running} {unit}") for unit in units}
    # which reads its certificates once
    assert {unit for unit in units if after[unit] != before[unit]} == {GPU_UNIT}
    with_gpus.wait_until_up()


def test_nodes_and_prometheus_go_over_to_tls_together_and_a_node_that_was_down_later(
    monitored: MonitoredCluster,
) -> None:
    settings = monitored.directory / SETTINGS
    before = settings.read_text(encoding="utf-8")
    edit(settings, "---\n", f"---\n{OFF}")
    monitored.parsed("deploy", "monitoring")
    wait_for_schemes(monitored, asked_by("http"))
    assert monitored.root("gpu01", "ls /etc/prometheus/deepops-tls 2>/dev/null; true") == ""

    settings.write_text(before, encoding="utf-8")
    monitored.power_cut("gpu01")
    try:
        assert monitored.deepopsctl("deploy", "monitoring", ok=False).returncode == ExitCode.UNREACHABLE
    finally:
        monitored.power_on("gpu01")
    partly = {**asked_by("https"), "gpu01/node": "http"}
    wait_for_schemes(monitored, partly)

    # Prometheus is not in this run, and would continue to ask as before
    monitored.deepopsctl("deploy", "monitoring", "--limit", "gpu01")
    wait_for_schemes(monitored, partly)

    monitored.parsed("deploy", "monitoring")
    wait_for_schemes(monitored, asked_by("https"))
    assert monitored.parsed("deploy", "monitoring")["changes"] == []
