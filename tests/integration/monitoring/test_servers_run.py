"""The servers and an exporter as a node's units start them, with the files that it gets, the exporter by TLS; and the
parsers that check these files on the node.

They are this host's: on Debian 12 Prometheus 2.42 and Alertmanager 0.25, while the lab has Debian 13's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deepopsctl.monitoring import ports
from deepopsctl.node_programs._shared.own_programs import LIBRARY
from tests.integration.monitoring.promapi import Prometheus, login
from tests.support import systemd
from tests.support.cluster import wait_until
from tests.support.monitoring_roles import CTL1, PASSWORD, alertmanager, prometheus
from tests.support.paths import ROOT
from tests.support.recorded_roles import Asked, content, record

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
# a loopback address at which nothing else listens: ports are the product's own
ADDRESS = "127.77.0.1"
EXPORTER, PROMETHEUS, ALERTMANAGER = (ports.default(name) for name in ("node", "prometheus", "alertmanager"))
AMTOOL = "/etc/prometheus/amtool.yml"
DIRECTORIES = ("/etc/prometheus", "/var/lib/prometheus", LIBRARY)
NODE = {
    **CTL1,
    "monitoring_node_address": ADDRESS,
    "monitoring_node_has_database": False,
    "monitoring_logs": False,
    # whatever release runs the tests: what all exporters can do
    "monitoring_node_platform": "Debian 12",
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    """All that runs, as the roles ask for it."""
    servers = prometheus(
        prometheus_address=ADDRESS, prometheus_alertmanager=f"{ADDRESS}:{ALERTMANAGER}", prometheus_retention_size="40%"
    )
    servers["prometheus_cluster"] = {**servers["prometheus_cluster"], "addresses": {"ctl1": ADDRESS}}
    hosts = {"ctl1": {**NODE, **servers, **alertmanager(alertmanager_address=ADDRESS)}}
    roles = [{"role": name} for name in ("monitoring_node", "prometheus", "alertmanager")]
    recorded = record(tmp_path_factory.mktemp("play"), roles, hosts)
    return [recorded.step("ctl1", step) for step in ("node", "prometheus", "alertmanager")]


def moved(text: str, root: Path) -> str:
    """With directories of the test in place of the node's."""
    for directory in DIRECTORIES:
        text = text.replace(directory, f"{root}{directory}")
    return text


@dataclass(frozen=True)
class Running:
    """They run; `root` has their files, `logs` their logs."""

    root: Path
    logs: Path

    prometheus: ClassVar = Prometheus(f"http://{ADDRESS}:{PROMETHEUS}", "admin", PASSWORD)

    def alerts(self) -> set[str]:
        """Names of the alerts that Alertmanager has."""
        address = f"http://{ADDRESS}:{ALERTMANAGER}/api/v2/alerts"
        request = urllib.request.Request(address, headers=login("admin", PASSWORD))
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (our own processes)
            return {alert["labels"]["alertname"] for alert in json.load(answer)}

    def both_answer(self) -> bool:
        try:
            self.alerts()
            return bool(self.prometheus.get("status/buildinfo"))
        except OSError:
            return False

    def up(self) -> set[str]:
        return {sample["metric"]["job"] for sample in self.prometheus.query("up == 1")}

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.logs.iterdir())


@pytest.fixture(scope="module")
def root(steps: list[Asked], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all files, in place of the node's."""
    root = tmp_path_factory.mktemp("root")
    for step in steps:
        for directory in step.arguments["directories"]:
            (root / directory["path"].lstrip("/")).mkdir(parents=True, exist_ok=True)
        for file in step.files:
            path = root / file["path"].lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(moved(content(file), root), encoding="utf-8")
            path.chmod(int(file.get("mode", "0644"), 8))
    return root


@pytest.fixture(scope="module")
def running(steps: list[Asked], root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    logs = tmp_path_factory.mktemp("logs")
    with ExitStack() as started:
        for file in (file for step in steps for file in step.files):
            if file["path"].endswith(".service.d/deepopsctl.conf"):
                log = started.enter_context((logs / Path(file["path"]).parent.name).open("wb"))
                argv = systemd.command(moved(content(file), root))
                process = started.enter_context(subprocess.Popen(argv, stdout=log, stderr=log, cwd=root))
                started.callback(process.kill)
        servers = Running(root, logs)
        wait_until("both answer", servers.both_answer, details=servers.log)
        yield servers


def refused_by_parser(file: Mapping[str, Any], path: Path) -> str:
    """What the file's own parser prints where it refuses it, or warns of what it names."""
    argv = [str(path) if word == "%s" else word for word in file["validate"]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    printed = done.stdout + done.stderr
    # a file that is not there would only be a warning
    return printed if done.returncode or "does not exist" in printed else ""


def test_every_file_passes_the_check_that_guards_it_and_a_broken_one_does_not(steps: list[Asked], root: Path) -> None:
    guarded = [file for step in steps for file in step.files if file.get("validate")]

    assert len(guarded) == len(list(RULES.glob("*.yml"))) + 3
    for file in guarded:
        path = root / file["path"].lstrip("/")
        broken = path.with_suffix(".broken")
        broken.write_text(f"{path.read_text()}\nno_such_key: [\n", encoding="utf-8")
        assert refused_by_parser(file, path) == ""
        assert refused_by_parser(file, broken) != "", file["path"]


def test_all_of_them_are_scraped_the_exporter_by_tls(running: Running) -> None:
    wait_until("all is up", lambda: running.up() == {"node", "prometheus", "alertmanager"}, details=running.log)

    asked = running.prometheus.get("targets")["activeTargets"]
    assert {target["scrapeUrl"] for target in asked if target["labels"]["job"] == "node"} == {
        f"https://{ADDRESS}:{EXPORTER}/metrics"
    }


def test_a_share_of_the_disk_is_the_limit_of_prometheus_data(running: Running) -> None:
    limit = "prometheus_tsdb_retention_limit_bytes"
    wait_until("its limit is known", lambda: running.prometheus.query(limit), details=running.log)
    (sample,) = running.prometheus.query(limit)
    free = shutil.disk_usage(running.root).free

    # others write there meanwhile, too
    assert 0.3 * free < float(sample["value"][1]) < 0.5 * free
    assert "40 % of" in running.log()


def test_every_rule_is_loaded_and_an_alert_gets_as_far_as_alertmanager(running: Running) -> None:
    groups = running.prometheus.get("rules")["groups"]
    assert {Path(group["file"]).name for group in groups} == {path.name for path in RULES.glob("*.yml")}
    wait_until("Watchdog is there", lambda: "Watchdog" in running.alerts(), details=running.log)


def test_amtool_finds_alertmanager_and_silences(running: Running, tmp_path: Path) -> None:
    # the one of `root` comes before the host's, which a test can't write
    (tmp_path / ".config" / "prometheus").mkdir(parents=True)
    (tmp_path / ".config" / "prometheus" / "amtool.yml").symlink_to(f"{running.root}{AMTOOL}")

    def amtool(*words: str) -> str:
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin", "USER": "root"}
        return subprocess.run(
            ["amtool", *words], env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    made = amtool("silence", "add", "node=login1", "--duration=1h", "--comment=reboot").strip()

    assert made in amtool("silence", "query")
    amtool("silence", "expire", made)


def test_the_pages_are_closed_without_the_password(running: Running) -> None:
    for port in (PROMETHEUS, ALERTMANAGER):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://{ADDRESS}:{port}/", timeout=60)
