"""A deploy ends well only where units stay up and targets are scraped; what cannot be had is left out and named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deepopsctl.errors import ExitCode
from deepopsctl.monitoring import ports
from tests.lab.harness import wait_until
from tests.lab.monitored import MonitoredCluster


def deploy(cluster: MonitoredCluster, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """Deploy monitoring, parsed."""
    done = cluster.deepopsctl("deploy", "monitoring", "--json", ok=False)
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == code, document
    return document


@contextmanager
def unit_override(cluster: MonitoredCluster, node: str, unit: str, command: str) -> Iterator[None]:
    """A unit that runs another program for a while."""
    directory = f"/etc/systemd/system/{unit}.d"
    lines = ["[Service]", "Type=simple", "ExecStart=", f"ExecStart={command}", "Restart=always", "RestartSec=3"]
    text = "\n".join(lines)
    cluster.root(
        node,
        f"mkdir -p {directory}; cat >{directory}/zz-trial.conf <<'END'\n{text}\nEND\n"
        f"systemctl daemon-reload; systemctl restart {unit}",
    )
    try:
        yield
    finally:
        cluster.root(node, f"rm {directory}/zz-trial.conf; systemctl daemon-reload; systemctl restart {unit}")
        deploy(cluster)


@pytest.mark.parametrize(
    "lasts",
    [pytest.param("exit 1", id="at once"), pytest.param("sleep 4; exit 1", id="after a while")],
)
def test_a_unit_that_systemd_starts_again_and_again_fails_its_node_with_its_last_words(
    monitored: MonitoredCluster, lasts: str
) -> None:
    words = "no certificate for me"

    with unit_override(
        monitored, "gpu01", "systemd-journal-upload.service", f"/bin/sh -c 'echo \"<3>{words}\" >&2; {lasts}'"
    ):
        restarts = "systemctl show -p NRestarts --value systemd-journal-upload.service"
        wait_until("systemd has started it again and again", lambda: int(monitored.root("gpu01", restarts)) > 1)
        done = deploy(monitored, ExitCode.FAILED)

    (failure,) = done["failures"]
    assert failure["host"] == "gpu01"
    assert failure["message"].startswith("systemd-journal-upload.service does not ")
    assert words in failure["message"]
    assert "journalctl -u systemd-journal-upload.service" in failure["hint"]


def test_a_unit_that_runs_and_does_not_listen_fails_its_node(monitored: MonitoredCluster) -> None:
    with unit_override(monitored, "gpu01", "prometheus-node-exporter.service", "/bin/sleep infinity"):
        done = deploy(monitored, ExitCode.FAILED)

    messages = {failure["host"]: failure["message"] for failure in done["failures"]}
    assert (
        f"prometheus-node-exporter.service runs but does not listen on port {ports.default('node')}"
        in messages["gpu01"]
    )


def test_a_deploy_ends_when_prometheus_scrapes_what_it_has_put_right(monitored: MonitoredCluster) -> None:
    """Its certificate is another node's."""
    for path in ("/etc/prometheus/deepops-tls/node.crt", "/etc/prometheus/deepops-tls/node.key"):
        text = monitored.root("ctl1", f"cat {path}")
        monitored.root("gpu01", f"echo '{text}' >{path}")
    # Prometheus would continue with the connection that it has
    monitored.root("gpu01", "systemctl restart prometheus-node-exporter.service")
    wait_until("it is down", lambda: ("node", "gpu01") in monitored.down(), details=lambda: str(monitored.down()))

    done = deploy(monitored)

    # the files were put right, and the deploy ended after the next scrape
    assert monitored.down() == {}
    assert {change["host"] for change in done["changes"]} == {"gpu01"}
