"""A Prometheus that is measured: a process with the product's configuration and rules, in a directory of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.crowd import GPU_PORT, NODE_PORT
from tests.integration.monitoring import promapi
from tests.support.monitoring_roles import prometheus_config

RULES = Path(__file__).resolve().parent.parent / "roles" / "prometheus" / "files" / "rules"
PORT = 19090
CLUSTER = "bench"
# a pass over all that has been scraped, as Prometheus makes it every two hours, is part of a run of some minutes
BLOCK = "4m"
MONITOR = "n0001"


class Prometheus(promapi.Prometheus):
    """The process, with its own metrics and the kernel's."""

    def __init__(self, program: str, directory: Path, addresses: Mapping[str, str], *, with_gpus: bool) -> None:
        super().__init__(f"http://127.0.0.1:{PORT}")
        self._directory = directory
        ports = {"node": NODE_PORT, **({"gpu": GPU_PORT} if with_gpus else {})}
        (directory / "targets.json").write_text(json.dumps(_targets(addresses, ports)))
        # JSON is YAML
        (directory / "prometheus.yml").write_text(json.dumps(_config(directory)))
        argv = [
            program,
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--storage.tsdb.min-block-duration={BLOCK}",
            f"--storage.tsdb.max-block-duration={BLOCK}",
            f"--web.listen-address=127.0.0.1:{PORT}",
            "--log.level=warn",
        ]
        self._log = directory / "log"
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=self._log.open("wb"))

    def wait(self, limit_s: float = 60) -> None:
        """Wait until it answers; fail with its log if it ends instead."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                self.query("vector(1)")
            except (urllib.error.URLError, ConnectionError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"no Prometheus: {self._log.read_text()}") from None
                time.sleep(0.5)
            else:
                return

    def rest(self, limit_s: float = 300) -> float:
        """Scrape and evaluate nothing more; the moment until which all is there. What is asked then is paid alone."""
        now = time.time()
        (self._directory / "prometheus.yml").write_text(
            json.dumps({"global": {"external_labels": {"cluster": CLUSTER}}})
        )
        self._process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + limit_s
        while "scrape_configs" in self.get("status/config")["yaml"] and time.monotonic() < deadline:
            time.sleep(1)
        return now

    def value(self, query: str) -> float:
        """The one value that a query returns; 0 for none."""
        series = self.query(query)
        return float(series[0]["value"][1]) if series else 0.0

    def version(self) -> str:
        """As it names itself."""
        return str(self.get("status/buildinfo")["version"])

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, key: str) -> int:
        """A line of its status, in bytes: VmRSS, VmHWM."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    def blocks(self) -> list[Mapping[str, float]]:
        """Of each block that has been written: samples, series, and the bytes of chunks and of the index."""
        blocks: list[Mapping[str, float]] = []
        for meta in self._directory.glob("data/*/meta.json"):
            stats = json.loads(meta.read_text())["stats"]
            chunks = sum(path.stat().st_size for path in meta.parent.glob("chunks/*"))
            index = (meta.parent / "index").stat().st_size
            blocks.append(
                {"samples": stats["numSamples"], "series": stats["numSeries"], "chunks": chunks, "index": index}
            )
        return blocks

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def _config(directory: Path) -> dict[str, Any]:
    """The product's own, without the passwords and the Alertmanager that are not here."""
    config: dict[str, Any] = yaml.safe_load(
        prometheus_config(
            tls=False,
            targets=f"{directory}/targets.json",
            __prometheus_rules=str(RULES),
            __prometheus_target_limit=8192,
            prometheus_cluster={"name": CLUSTER},
        )
    )
    del config["alerting"]
    for scraped in config["scrape_configs"]:
        scraped.pop("basic_auth", None)
    return config


def _targets(addresses: Mapping[str, str], ports: Mapping[str, int]) -> Sequence[Mapping[str, object]]:
    def line(name: str, address: str, exporter: str) -> Mapping[str, object]:
        labels = {"__exporter": exporter, "cluster": CLUSTER, "node": name, "instance": name}
        return {"targets": [address], "labels": labels}

    def job_of(name: str, exporter: str) -> str:
        # its Slurm metrics are about all nodes
        return "controller" if (name, exporter) == (MONITOR, "node") else exporter

    nodes = [
        line(name, f"{at}:{port}", job_of(name, job)) for name, at in addresses.items() for job, port in ports.items()
    ]
    return [*nodes, line(MONITOR, f"127.0.0.1:{PORT}", "prometheus")]
