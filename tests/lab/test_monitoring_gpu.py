"""nvitop-exporter on a real node: installed without an index, waiting without a driver, scraped with a stand-in.

The stand-in (tests/fakes/nvml_metrics.c) has the name of NVIDIA's library: four GPUs, one of them in MIG mode.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.harness import PATIENCE_S, SETTINGS, edit
from tests.lab.monitored import MonitoredCluster
from tests.support.paths import FAKES

UNIT = "deepops-gpumetrics.service"
DIRECTORY = "/usr/local/lib/deepopsctl/nvitop-exporter-1.7.2"
STANDIN = FAKES / "nvml_metrics.c"
LIBRARY = "/usr/local/lib/libnvidia-ml.so.1"
NONE = "monitoring_gpu_exporter: none"
# the state of the stand-in: which errors it simulates
DRIVER_STATE = "/run/stand-in-nvml"


def gpus(cluster: MonitoredCluster, promql: str) -> set[str]:
    """The GPUs that Prometheus has now."""
    return {sample["metric"]["gpu"] for sample in cluster.query(promql)}


@pytest.fixture(scope="module")
def watched(monitored: MonitoredCluster) -> Iterator[MonitoredCluster]:
    """With the exporter that a lab does without: its GPUs are simulated, and would be reported as lost."""
    settings = monitored.directory / SETTINGS
    before = settings.read_text(encoding="utf-8")
    edit(settings, NONE, "monitoring_gpu_exporter: auto")
    try:
        monitored.parsed("deploy", "monitoring")
        yield monitored
    finally:
        settings.write_text(before, encoding="utf-8")
        monitored.parsed("deploy", "monitoring")


@pytest.fixture
def driver(watched: MonitoredCluster, tmp_path: Path) -> Iterator[None]:
    """A stand-in for NVIDIA's library, while the test runs."""
    made = tmp_path / "standin.so"
    argv = ["cc", "-shared", "-fPIC", "-s", "-o", str(made), str(STANDIN)]
    subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
    text = base64.b64encode(made.read_bytes()).decode()
    again = f"ldconfig && systemctl restart {UNIT}"
    try:
        watched.root("gpu01", f"mkdir -p {DRIVER_STATE}; echo {text} | base64 -d >{LIBRARY} && {again}")
        yield
    finally:
        watched.root("gpu01", f"rm -rf {LIBRARY} {DRIVER_STATE}; {again}")


def test_on_a_node_without_a_driver_the_exporter_logs_that_and_goes_on(watched: MonitoredCluster) -> None:
    assert watched.wait_for('deepops_gpu_driver_up{node="gpu01"} == 0')

    assert watched.root("gpu01", f"systemctl show -p NRestarts --value {UNIT}") == "0"
    # of this start alone: another test may have had it before
    start = watched.root("gpu01", f"systemctl show -p InvocationID --value {UNIT}")
    count = watched.root("gpu01", f"journalctl -q -o cat _SYSTEMD_INVOCATION_ID={start} | grep -c 'no NVIDIA driver'")
    assert count == "1"
    # a node without GPUs has no exporter of them, and none is expected there
    assert watched.query('up{job="gpu", node="gpu01"}')
    assert not watched.query('up{job="gpu", node="ctl1"}')
    assert not watched.holds("ctl1", f"systemctl cat {UNIT}")


@pytest.mark.usefixtures("driver")
def test_every_gpu_of_a_node_is_there_under_one_set_of_names(watched: MonitoredCluster) -> None:
    assert watched.wait_for('count(gpu:present:bool{node="gpu01"}) == 4')
    assert watched.wait_for('count(gpu:memory_used:bytes{node="gpu01"}) == 6')

    assert gpus(watched, 'gpu:power:watts{node="gpu01"} > 0') == {"0", "1", "2", "3"}
    assert gpus(watched, 'gpu:utilization:ratio{node="gpu01"} <= 1') == {"0", "1", "2"}
    assert watched.query('{__name__=~"process_.+", job="gpu", pid!=""}') == []

    watched.root("gpu01", f"echo 2 79 >{DRIVER_STATE}/xid")
    assert watched.wait_for('gpu:xid:last{node="gpu01", gpu="2"} == 79')
