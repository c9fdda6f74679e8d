"""A lab cluster with monitoring on it: Prometheus and Alertmanager are asked from here, as people would."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.secrets import decrypt
from deepopsctl.status.journals import log_host
from tests.lab.harness import SETTINGS, LabCluster, edit, fresh_cluster
from tests.support.cluster import PATIENCE_S, wait_until

PROMETHEUS, ALERTMANAGER = 9090, 9093
# settings of what is off unless a site wants it
OPTIONAL = "monitoring_node_job_summaries: true\nmonitoring_node_job_endings: true\n"


@dataclass(frozen=True)
class MonitoredCluster(LabCluster):
    """Its controller is the monitoring host as well, where no other node has that role."""

    components: ClassVar[tuple[str, ...]] = ("slurm", "monitoring")

    def address(self, node: str) -> str:
        """A node's address."""
        nodes = ClusterDir(self.directory).cluster().nodes
        return next(entry.address for entry in nodes if entry.name == node)

    def monitoring_host(self) -> str:
        """Where Prometheus is."""
        return log_host(ClusterDir(self.directory).cluster()).name

    def secret(self, name: str) -> str:
        """A secret of the vault."""
        directory = ClusterDir(self.directory)
        opened = decrypt(directory.secrets.read_text("utf-8"), directory.vault_password.read_bytes().strip())
        return opened[name]

    def password(self) -> str:
        """What the web pages ask for."""
        return self.secret("monitoring_web_password")

    def status(self, port: int, path: str = "/", password: str | None = None) -> int:
        """What a web server on the monitoring host answers, without a password or with one."""
        try:
            with self._open(port, path, password) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def ask(self, path: str, port: int = PROMETHEUS, **parameters: str) -> Any:
        """The JSON of an API."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with self._open(port, f"{path}{query}", self.password()) as answer:
            return json.load(answer)

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The result of a Prometheus query now: [{metric: {label: text}, value: [time, text]}]."""
        series: list[dict[str, Any]] = self.ask("/api/v1/query", query=promql)["data"]["result"]
        return series

    def wait_for(self, promql: str) -> list[dict[str, Any]]:
        """The same, as soon as there is anything."""
        wait_until(f"Prometheus knows {promql}", lambda: self.query(promql), details=lambda: str(self.query("up")))
        return self.query(promql)

    def down(self) -> dict[tuple[str, str], str]:
        """What Prometheus can't scrape, by job and node, and why; all of it before the first time."""
        targets = self.ask("/api/v1/targets", state="active")["data"]["activeTargets"]
        return {
            (target["labels"]["job"], target["labels"]["node"]): target["lastError"] or target["health"]
            for target in targets
            if target["health"] != "up"
        }

    def wait_until_up(self) -> None:
        """Until every target was scraped well."""
        wait_until("all targets are up", lambda: not self.down(), details=lambda: str(self.down()))

    def _open(self, port: int, path: str, password: str | None) -> Any:
        request = urllib.request.Request(f"http://{self.address(self.monitoring_host())}:{port}{path}")
        if password is not None:
            both = base64.b64encode(f"admin:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {both}")
        return urllib.request.urlopen(request, timeout=PATIENCE_S)  # noqa: S310 (http, of the lab)


class Asked:
    """The cluster's Prometheus as a Source of tests/support/opened_dashboards.py."""

    def __init__(self, cluster: MonitoredCluster) -> None:
        self._cluster = cluster

    def count(self, text: str) -> int:
        return len(self._cluster.query(text))

    def label_values(self, selector: str, label: str) -> list[str]:
        values: list[str] = self._cluster.ask(f"/api/v1/label/{label}/values", PROMETHEUS, **{"match[]": selector})[
            "data"
        ]
        return values


@contextmanager
def fresh_monitored(
    name: str, directories: pytest.TempPathFactory, *options: str, settings: str = "", os: str = "debian13"
) -> Iterator[MonitoredCluster]:
    """A new lab with monitoring switched on and lines of a site's settings; nothing is deployed."""
    with fresh_cluster(name, directories, *options, "--gpus", "a100:2", "--monitoring", os=os) as made:
        edit(made.directory / SETTINGS, "---\n", f"---\n{settings}")
        yield MonitoredCluster(**vars(made))


def monitor(cluster: LabCluster) -> MonitoredCluster:
    """The same cluster after a deploy that has switched monitoring on."""
    settings = f"{OPTIONAL}grafana_enabled: false\nmonitoring_gpu_exporter: none\n"
    edit(cluster.directory / SETTINGS, "monitoring_enabled: false\n", f"monitoring_enabled: true\n{settings}")
    made = MonitoredCluster(**vars(cluster))
    made.deploy()
    return made
