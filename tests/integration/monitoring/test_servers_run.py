"""The servers and an exporter as a node's units start them, with the files that it gets, the exporter by TLS.

They are this host's: on Debian 12 Prometheus 2.42 and Alertmanager 0.25, while the lab has Debian 13's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import new_authority
from deepopsctl.monitoring import node_exporter, prometheus_server, targets
from deepopsctl.monitoring.resources import MonitoredNode, Needs, combine
from deepopsctl.node_programs.shipping import LIBRARY
from tests.integration.monitoring.promapi import login
from tests.support.cluster import wait_until
from tests.support.paths import ROOT
from tests.unit.monitoring.test_prometheus_server import HOST, PASSWORD, SETTINGS

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
# a loopback address that nobody else listens at: ports are the product's own
ADDRESS = "127.77.0.1"
DIRECTORIES = ("/etc/prometheus", "/var/lib/prometheus", LIBRARY)
MACHINE: MonitoredNode = replace(
    HOST,
    groups=frozenset({"slurm_controller", "monitoring"}),
    address=ADDRESS,
    monitoring_address=ADDRESS,
    # whatever release runs the tests: what all exporters can do
    platform="Debian 12",
    settings={**SETTINGS, "exporter_tls": True, "retention_size": "40%"},
    secrets={**HOST.secrets, "authority": new_authority(validity.today())},
)


def plan() -> Needs:
    """All that runs."""
    rules = {path.name: path.read_text(encoding="utf-8") for path in sorted(RULES.glob("*.yml"))}
    prometheus = prometheus_server.prometheus(MACHINE, targets.render([MACHINE]), rules)
    return combine([node_exporter.needs(MACHINE), prometheus, prometheus_server.alertmanager(MACHINE)])


def moved(text: str, root: Path) -> str:
    """With directories of the test in place of the node's."""
    for directory in DIRECTORIES:
        text = text.replace(directory, f"{root}{directory}")
    return text


def command(dropin: str) -> list[str]:
    """What systemd makes of the unit's ExecStart: no word of these has a space."""
    line = dropin.partition("\nExecStart=\nExecStart=")[2].replace(" \\\n", " ").partition("\n")[0]
    return [word.strip('"').replace("\\\\", "\\").replace("%%", "%").replace("$$", "$") for word in line.split()]


@dataclass(frozen=True)
class Running:
    """They run; `root` has their files, `logs` their logs."""

    root: Path
    logs: Path

    def ask(self, port: int, path: str, **given: str) -> Any:
        address = f"http://{ADDRESS}:{port}{path}?{urllib.parse.urlencode(given)}"
        request = urllib.request.Request(address, headers=login("admin", PASSWORD))
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (our own processes)
            return json.load(answer)

    def silent(self) -> list[int]:
        """Ports at which nobody answers yet."""
        pages = {
            prometheus_server.PROMETHEUS_PORT: "/api/v1/status/buildinfo",
            prometheus_server.ALERTMANAGER_PORT: "/api/v2/status",
        }
        return [port for port, page in pages.items() if not self._answers(port, page)]

    def _answers(self, port: int, page: str) -> bool:
        try:
            return bool(self.ask(port, page))
        except OSError:
            return False

    def query(self, promql: str) -> list[dict[str, Any]]:
        series: list[dict[str, Any]] = self.ask(prometheus_server.PROMETHEUS_PORT, "/api/v1/query", query=promql)[
            "data"
        ]["result"]
        return series

    def wait_for(self, promql: str) -> list[dict[str, Any]]:
        wait_until(f"Prometheus knows {promql}", lambda: self.query(promql), details=self.log)
        return self.query(promql)

    def up(self) -> set[str]:
        return {sample["metric"]["job"] for sample in self.query("up == 1")}

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.logs.iterdir())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root, logs = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("logs")
    wanted = plan()
    for directory in wanted.directories:
        (root / directory.path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for file in wanted.files:
        path = root / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(moved(file.content, root), encoding="utf-8")
        path.chmod(int(file.mode, 8))
    with ExitStack() as started:
        for file in wanted.files:
            if file.path.endswith(".service.d/deepopsctl.conf"):
                log = started.enter_context((logs / Path(file.path).parent.name).open("wb"))
                argv = command(moved(file.content, root))
                process = started.enter_context(subprocess.Popen(argv, stdout=log, stderr=log, cwd=root))
                started.callback(process.kill)
        servers = Running(root, logs)
        wait_until("both answer", lambda: not servers.silent(), details=servers.log)
        yield servers


def test_all_of_them_are_scraped_the_exporter_by_tls(running: Running) -> None:
    wait_until("all is up", lambda: running.up() == {"node", "prometheus", "alertmanager"}, details=running.log)

    asked = running.ask(prometheus_server.PROMETHEUS_PORT, "/api/v1/targets")["data"]["activeTargets"]
    assert {target["scrapeUrl"] for target in asked if target["labels"]["job"] == "node"} == {
        f"https://{ADDRESS}:{node_exporter.PORT}/metrics"
    }


def test_a_share_of_the_disk_is_the_limit_of_prometheus_data(running: Running) -> None:
    (sample,) = running.wait_for("prometheus_tsdb_retention_limit_bytes")
    free = shutil.disk_usage(running.root).free

    # others write there meanwhile, too
    assert 0.3 * free < float(sample["value"][1]) < 0.5 * free
    assert "40 % of" in running.log()


def test_every_rule_is_loaded_and_an_alert_gets_as_far_as_alertmanager(running: Running) -> None:
    groups = running.ask(prometheus_server.PROMETHEUS_PORT, "/api/v1/rules")["data"]["groups"]
    assert {Path(group["file"]).name for group in groups} == {path.name for path in RULES.glob("*.yml")}

    def known() -> set[str]:
        return {
            each["labels"]["alertname"] for each in running.ask(prometheus_server.ALERTMANAGER_PORT, "/api/v2/alerts")
        }

    wait_until("Watchdog is there", lambda: "Watchdog" in known(), details=running.log)


def test_amtool_finds_alertmanager_and_silences(running: Running, tmp_path: Path) -> None:
    # the one of `root` comes before the host's, which a test can't write
    (tmp_path / ".config" / "prometheus").mkdir(parents=True)
    (tmp_path / ".config" / "prometheus" / "amtool.yml").symlink_to(f"{running.root}{prometheus_server.AMTOOL}")

    def amtool(*words: str) -> str:
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin", "USER": "root"}
        return subprocess.run(
            ["amtool", *words], env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    made = amtool("silence", "add", "node=login1", "--duration=1h", "--comment=reboot").strip()

    assert made in amtool("silence", "query")
    amtool("silence", "expire", made)


def test_the_pages_are_closed_without_the_password(running: Running) -> None:
    for port in (prometheus_server.PROMETHEUS_PORT, prometheus_server.ALERTMANAGER_PORT):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://{ADDRESS}:{port}/", timeout=60)
