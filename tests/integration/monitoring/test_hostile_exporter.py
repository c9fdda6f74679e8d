"""A job that answers at an exporter's port, asked by a real Prometheus with the configuration that a cluster gets."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import new_authority
from deepopsctl.monitoring import targets
from deepopsctl.monitoring.monitored_node import MonitoredNode
from tests.integration.monitoring.promapi import Prometheus
from tests.integration.monitoring.servers import PASSWORD, USER, Page, prometheus
from tests.support.cluster import wait_until
from tests.support.monitoring_roles import AUTHORITY, exporter_files, prometheus_config

# series that a job could export for a node that it does not run on
FORGED = (
    'deepops_slurm_node_gpus{node="victim",gpu_type="h100"} 8\n'
    'gpu:present:bool{node="victim",gpu="0"} 0\n'
    'DCGM_FI_DEV_XID_ERRORS{node="victim",gpu="0",cluster="hpc",instance="victim",job="gpu"} 79\n'
    'deepops_mount_up{instance="victim",job="node",exported_node="victim"} 0\n'
)
TRUE = 'deepops_slurm_node_state{node="gpu01",state="idle"} 1\nslurm_nodes 4\nsite_rack{node="r1"} 1\n'


def node_named(name: str, address: str) -> MonitoredNode:
    return MonitoredNode(
        name,
        "hpc",
        frozenset({"slurm_compute"}),
        address,
        controller="ctl1",
        monitoring_host="",
        settings={"exporter_tls": True},
        secrets={"authority": AUTHORITY},
    )


CONTROLLER = node_named("ctl1", "127.77.1.1")
# each is one way to answer in a node's place, but for the last three, which have the node's own certificate
PLAIN, STRANGER, OTHER = (node_named(f"gpu0{number}", f"127.77.1.1{number}") for number in (1, 2, 3))
LIAR, FLOOD, LONG = (node_named(f"gpu0{number}", f"127.77.1.1{number}") for number in (4, 5, 6))
NODES = (PLAIN, STRANGER, OTHER, LIAR, FLOOD, LONG)


@dataclass(frozen=True)
class Asked:
    """A Prometheus that asks all of them."""

    api: Prometheus

    def health(self) -> dict[str, str]:
        """Of each node, what came of the last scrape: `up`, or why not."""
        targets = self.api.get("targets", state="active")["activeTargets"]
        return {each["labels"]["node"]: each["lastError"] or each["health"] for each in targets}

    def all_asked(self) -> bool:
        health = self.health()
        return set(health) == {each.name for each in (CONTROLLER, *NODES)} and "unknown" not in health.values()


def identity(of: MonitoredNode, directory: Path) -> Path:
    return exporter_files(directory, of.name, of.address, authority=of.secrets["authority"])


def serving(at: MonitoredNode, text: str, certificate: Path | None) -> Page:
    """A page at the node's address, by TLS where there is a certificate."""
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "node.crt", certificate / "node.key")
    return Page(lambda _path: (200, text), host=at.address, tls=context)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """All at once: a page for each, and Prometheus."""
    directory = tmp_path_factory.mktemp("hostile")
    stranger = replace(STRANGER, secrets={"authority": new_authority(validity.today())})
    pages = [
        (CONTROLLER, TRUE, CONTROLLER),
        (PLAIN, FORGED, None),
        (STRANGER, FORGED, stranger),
        # a job that sends Prometheus on to another node's exporter, or has the certificate of another node
        (OTHER, FORGED, LIAR),
        (LIAR, FORGED + "well 1\n", LIAR),
        (FLOOD, "".join(f'flood{{number="{number}"}} 1\n' for number in range(60_000)), FLOOD),
        (LONG, f'long{{text="{"x" * 9000}"}} 1\n', LONG),
    ]
    with ExitStack() as started:
        ports = {}
        for number, (at, text, shown) in enumerate(pages):
            certificate = identity(shown, directory / f"identity{number}") if shown else None
            ports[at.name] = started.enter_context(serving(at, text, certificate)).port
        lines = targets.render([CONTROLLER, *NODES])
        for each in (CONTROLLER, *NODES):
            lines = lines.replace(f'"{each.address}:9100"', f'"{each.address}:{ports[each.name]}"')
        (directory / "targets.yml").write_text(lines, encoding="utf-8")
        own = identity(CONTROLLER, directory / "prometheus")
        config = config_of(directory / "targets.yml", own)
        server = started.enter_context(prometheus(directory, config))
        queried = Asked(Prometheus(server.url, USER, PASSWORD))
        wait_until("each was asked", queried.all_asked, details=server.log)
        yield queried


def config_of(file: Path, own: Path) -> dict[str, Any]:
    """The product's, with files of the test's and less patience."""
    config: dict[str, Any] = yaml.safe_load(prometheus_config(targets=str(file)))
    del config["alerting"], config["rule_files"]
    config["scrape_configs"] = [each for each in config["scrape_configs"] if "basic_auth" not in each]
    for each in config["scrape_configs"]:
        each["scrape_interval"] = "5s"
        each["scrape_timeout"] = "5s"
        if "tls_config" in each:
            each["tls_config"] = {key: str(own / Path(path).name) for key, path in each["tls_config"].items()}
    return config


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (PLAIN, "TLS handshake"),
        (STRANGER, "certificate signed by unknown authority"),
        (OTHER, "certificate is valid for"),
        (FLOOD, "sample limit exceeded"),
        (LONG, "label_value_length_limit"),
    ],
    ids=("in clear", "with its own certificate", "with another node's", "too much", "too long"),
)
def test_a_page_that_is_not_the_nodes_exporter_is_not_accepted(asked: Asked, node: MonitoredNode, why: str) -> None:
    assert why in asked.health()[node.name]


def test_a_node_exports_no_series_of_another(asked: Asked) -> None:
    wait_until("its page is known", lambda: asked.api.count('well{node="gpu04"} == 1'))

    series = asked.api.query('{node="victim"} or {instance="victim"}')

    assert series == []
    assert asked.api.count('deepops_slurm_node_gpus{node="gpu04",exported_node="victim"}') == 1


def test_the_controller_exports_slurms_series_of_each_node_and_nothing_else(asked: Asked) -> None:
    wait_until("its page is known", lambda: asked.api.count("slurm_nodes == 4"))

    (state,) = asked.api.query("deepops_slurm_node_state")

    assert state["metric"] == {
        "__name__": "deepops_slurm_node_state", "cluster": CONTROLLER.cluster, "node": "gpu01", "instance": "ctl1",
        "job": "node", "state": "idle",
    }  # fmt: skip
    assert asked.api.count('site_rack{node="ctl1",exported_node="r1"}') == 1
    assert asked.api.count('up{job="node",node="ctl1"} == 1') == 1
