"""nvitop-exporter on a real node: brought without an index, patient without a driver, scraped with a stand-in for one.

The stand-in (tests/monitoring/standin_nvml.c) has the name of NVIDIA's library: four GPUs, one of them in MIG mode.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import PATIENCE_S, wait_until
from tests.lab.monitored import MonitoredCluster

UNIT = "deepops-gpumetrics.service"
FOLDER = "/usr/local/lib/deepopsctl/nvitop-exporter-1.7.2"
STANDIN = Path(__file__).parents[1] / "monitoring" / "standin_nvml.c"
LIBRARY = "/usr/local/lib/libnvidia-ml.so.1"
# where the stand-in is told what goes wrong
TOLD = "/run/stand-in-nvml"


def deploy(cluster: MonitoredCluster) -> dict[str, Any]:
    """Deploy monitoring, parsed."""
    document: dict[str, Any] = json.loads(cluster.deepopsctl("deploy", "monitoring", "--json").stdout)
    return document


def gpus(cluster: MonitoredCluster, promql: str) -> set[str]:
    """The GPUs of what Prometheus says now."""
    return {sample["metric"]["gpu"] for sample in cluster.query(promql)}


@pytest.fixture
def driver(monitored: MonitoredCluster, tmp_path: Path) -> Iterator[None]:
    """A stand-in for NVIDIA's library, while the test runs."""
    made = tmp_path / "standin.so"
    argv = ["cc", "-shared", "-fPIC", "-s", "-o", str(made), str(STANDIN)]
    subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
    text = base64.b64encode(made.read_bytes()).decode()
    again = f"ldconfig && systemctl restart {UNIT}"
    try:
        monitored.root("gpu01", f"mkdir -p {TOLD}; echo {text} | base64 -d >{LIBRARY} && {again}")
        yield
    finally:
        monitored.root("gpu01", f"rm -rf {LIBRARY} {TOLD}; {again}")


def test_a_node_without_a_driver_says_so_and_goes_on(monitored: MonitoredCluster) -> None:
    assert monitored.wait_for('deepops_gpu_driver_up{node="gpu01"} == 0')

    assert monitored.root("gpu01", f"systemctl show -p NRestarts --value {UNIT}") == "0"
    said = monitored.root("gpu01", f"journalctl -q -o cat -u {UNIT} | grep -c 'no NVIDIA driver'")
    assert said == "1"
    # a machine without GPUs has no exporter of them, and none is missed there
    assert {sample["metric"]["node"] for sample in monitored.query('up{job="gpu"}')} == {"gpu01"}
    assert not monitored.holds("ctl1", f"systemctl cat {UNIT}")


@pytest.mark.usefixtures("driver")
def test_every_gpu_of_a_node_is_there_under_one_set_of_names(monitored: MonitoredCluster) -> None:
    assert monitored.wait_for('count(gpu:present:bool{node="gpu01"}) == 4')
    assert monitored.wait_for('count(gpu:memory_used:bytes{node="gpu01"}) == 6')

    assert gpus(monitored, 'gpu:power:watts{node="gpu01"} > 0') == {"0", "1", "2", "3"}
    assert gpus(monitored, 'gpu:utilization:ratio{node="gpu01"} <= 1') == {"0", "1", "2"}
    assert monitored.query('{__name__=~"process_.+", job="gpu", pid!=""}') == []

    monitored.root("gpu01", f"echo 2 79 >{TOLD}/xid")
    assert monitored.wait_for('gpu:xid:last{node="gpu01", gpu="2"} == 79')


def test_what_was_changed_by_hand_in_its_libraries_is_mended(monitored: MonitoredCluster) -> None:
    monitored.root("gpu01", f"echo 'x = 1' >>{FOLDER}/nvitop/version.py")

    done = deploy(monitored)

    assert [(entry["host"], entry["name"]) for entry in done["changes"]] == [("gpu01", FOLDER)]
    assert deploy(monitored)["changes"] == []
    state = f"systemctl is-active {UNIT}"
    wait_until("it runs", lambda: monitored.root("gpu01", state, ok=False) == "active")
