"""A real node exporter with the web configuration that a node gets: who may scrape it, and by which certificate."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pytest

from deepopsctl.certificates.authority import new_authority
from deepopsctl.monitoring import scrape_config, targets, tls as monitoring_tls
from deepopsctl.monitoring.resources import MonitoredNode, Needs
from tests.support.cluster import wait_until

DAY = date(2026, 11, 1)
EXPORTER = shutil.which("prometheus-node-exporter") or "prometheus-node-exporter"
MACHINE = MonitoredNode(
    "gpu01",
    "hpc",
    frozenset({"slurm_compute"}),
    "127.0.0.1",
    # whose exporters this host's are
    "Debian 12",
    monitoring_host="ctl1",
    settings={"exporter_tls": True},
    secrets={"authority": new_authority(DAY)},
)


@dataclass(frozen=True)
class Asked:
    """An exporter that runs, and the files of its node."""

    port: int
    directory: Path

    def answer(self, shown: Path | None = None) -> int:
        """The HTTP status for somebody who trusts this cluster's authority and shows a certificate, or none."""
        context = ssl.create_default_context(cafile=str(self.directory / "authority.crt"))
        if shown:
            context.load_cert_chain(shown / "node.crt", shown / "node.key")
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().status
        finally:
            connection.close()


def write_tls_files(node: MonitoredNode, directory: Path) -> Path:
    """Write the files that a node gets into a directory of the test."""
    directory.mkdir()
    for file in monitoring_tls.files(node).files:
        path = directory / Path(file.path).name
        path.write_text(file.content.replace(monitoring_tls.TLS_DIRECTORY, str(directory)), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """The exporter on a port of loopback that is free."""
    directory = write_tls_files(MACHINE, tmp_path_factory.mktemp("tls") / "gpu01")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    web = str(directory / Path(monitoring_tls.WEB).name)
    argv = [EXPORTER, f"--web.listen-address=127.0.0.1:{port}", f"--web.config.file={web}"]
    argv += ["--collector.disable-defaults", "--collector.time"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as exporter:
        try:
            wait_until("the exporter listens", lambda: exporter.poll() is None and listens(port))
            yield Asked(port, directory)
        finally:
            exporter.kill()


def listens(port: int) -> bool:
    """Whether anybody does at a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_node_of_the_cluster_is_answered(asked: Asked) -> None:
    assert asked.answer(asked.directory) == 200


def test_who_shows_no_certificate_is_not(asked: Asked) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        asked.answer()


def test_who_shows_another_clusters_certificate_is_not(asked: Asked, tmp_path: Path) -> None:
    stranger = replace(MACHINE, secrets={"authority": new_authority(DAY)})

    with pytest.raises((ssl.SSLError, ConnectionError)):
        asked.answer(write_tls_files(stranger, tmp_path / "stranger"))


def test_a_certificate_that_was_renewed_is_shown_without_a_restart(asked: Asked, tmp_path: Path) -> None:
    renewed = write_tls_files(replace(MACHINE, name="gpu02"), tmp_path / "gpu02")
    for name in ("node.crt", "node.key"):
        (asked.directory / name).write_bytes((renewed / name).read_bytes())
    context = ssl.create_default_context(cafile=str(asked.directory / "authority.crt"))
    context.load_cert_chain(asked.directory / "node.crt", asked.directory / "node.key")

    with (
        socket.create_connection(("127.0.0.1", asked.port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
    ):
        shown = encrypted.getpeercert()

    assert shown
    assert ("DNS", "gpu02") in shown["subjectAltName"]


def test_a_vault_without_the_authority_is_a_problem_with_its_remedy() -> None:
    (problem,) = monitoring_tls.files(replace(MACHINE, secrets={})).problems

    assert "`deepopsctl inventory` adds it" in problem


def test_nothing_of_it_is_there_where_it_is_off() -> None:
    off = replace(MACHINE, settings={})

    assert monitoring_tls.files(off).files == ()
    assert monitoring_tls.arguments(off) == ()
    assert monitoring_tls.scraped(off) == {}


def test_exporters_that_can_distinguish_certificates_answer_to_the_monitoring_host_alone() -> None:
    def asks_for(platform: str) -> str:
        files = monitoring_tls.files(replace(MACHINE, platform=platform)).files
        return next(file.content for file in files if file.path == monitoring_tls.WEB)

    assert 'client_allowed_sans: ["ctl1"]' in asks_for("Debian 13")
    # one that does not know the key would not start
    assert "client_allowed_sans" not in asks_for("Debian 12")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"private_data": "accounts,Jobs"}, "PrivateData in slurm_config has jobs"),
        ({"drain": True}, "monitoring_drain needs to know"),
        ({"private_data": "accounts,usage", "drain": False}, ""),
    ],
)
def test_what_needs_tls_is_refused_without(more: dict[str, object], message: str) -> None:
    problems = monitoring_tls.files(replace(MACHINE, settings={"exporter_tls": False, **more})).problems

    assert [problem.startswith(message) for problem in problems] == ([True] if message else [])
    assert monitoring_tls.files(replace(MACHINE, settings={"exporter_tls": True, **more})).problems == ()


def test_a_node_without_tls_for_a_while_is_no_problem() -> None:
    waits = replace(MACHINE, settings={"exporter_tls": True, "exporter_in_clear": True, "private_data": "jobs"})

    assert monitoring_tls.files(waits) == Needs()
    assert monitoring_tls.arguments(waits) == ()


class TestWhoIsAskedInClear:
    """Prometheus' current files, when a deploy is to write others."""

    MACHINES = (replace(MACHINE, name="ctl1", controller="ctl1"), replace(MACHINE, controller="ctl1"))
    NODES = frozenset({"ctl1", "gpu01"})

    def config(self, *, tls: bool) -> str:
        node = replace(self.MACHINES[0], settings={"exporter_tls": tls})
        return json.dumps(scrape_config.config(node, "", "", "", 2))

    def test_nobody_where_there_is_no_prometheus_or_its_files_are_broken(self) -> None:
        for text in ("", "}", "- 1", "[{labels: 3}]"):
            assert targets.asked_in_clear(text, text) == set()
            assert targets.asked_in_clear(self.config(tls=False), text) == set()

    def test_all_nodes_where_tls_was_off_whichever_release_wrote_the_files(self) -> None:
        before = targets.render(self.MACHINES).replace("controller", "node")

        assert targets.asked_in_clear(self.config(tls=False), before) == self.NODES
        assert targets.asked_in_clear(self.config(tls=False), targets.render(self.MACHINES)) == self.NODES

    def test_nobody_where_tls_was_on_but_for_nodes_that_no_deploy_has_reached(self) -> None:
        before = self.config(tls=True).replace('"controller"', '"another"')

        assert targets.asked_in_clear(before, targets.render(self.MACHINES)) == set()
        assert targets.asked_in_clear(self.config(tls=True), targets.render(self.MACHINES)) == set()
        assert targets.asked_in_clear(self.config(tls=True), targets.render(self.MACHINES, ["gpu01"])) == {"gpu01"}
