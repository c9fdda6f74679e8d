"""A real node exporter with the web configuration that a node gets: who may scrape it, and by which certificate."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import new_authority
from deepopsctl.monitoring import targets
from deepopsctl.monitoring.monitored_node import MonitoredNode
from tests.integration.monitoring.exporters import Asked
from tests.support.cluster import wait_until
from tests.support.monitoring_roles import exporter_files, prometheus_config, scraper_files
from tests.support.ports import free_port, listens

EXPORTER = shutil.which("prometheus-node-exporter") or "prometheus-node-exporter"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """The exporter on a port of loopback that is free."""
    directory = exporter_files(tmp_path_factory.mktemp("tls") / "gpu01", "gpu01")
    port = free_port()
    web = str(directory / "exporters.yml")
    argv = [EXPORTER, f"--web.listen-address=127.0.0.1:{port}", f"--web.config.file={web}"]
    argv += ["--collector.disable-defaults", "--collector.time"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as exporter:
        try:
            wait_until("the exporter listens", lambda: exporter.poll() is None and listens(port))
            yield Asked(port, directory)
        finally:
            exporter.kill()


def test_the_monitoring_host_is_answered_and_no_other_node(asked: Asked, tmp_path: Path) -> None:
    monitoring = exporter_files(tmp_path / "monitoring", "ctl1")
    stranger = exporter_files(tmp_path / "stranger", "ctl1", authority=new_authority(validity.today()))

    assert asked.answer(monitoring) == 200
    # no certificate; that of another cluster; those of nodes; that of a node that was the monitoring host before
    former = scraper_files(tmp_path / "former", "gpu01")
    others = [(None, ""), (stranger, "scraper"), (asked.directory, "node"), (monitoring, "node"), (former, "scraper")]
    for shown, name in others:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            asked.answer(shown, name)


def test_a_certificate_that_was_renewed_is_shown_without_a_restart(asked: Asked, tmp_path: Path) -> None:
    renewed = exporter_files(tmp_path / "gpu02", "gpu02")
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


class TestWhoIsAskedInClear:
    """Prometheus' current files, when a deploy is to write others."""

    NODES = frozenset({"ctl1", "gpu01"})
    MACHINES = tuple(
        MonitoredNode(name, "hpc", frozenset(), "127.0.0.1", controller="ctl1", settings={"exporter_tls": True})
        for name in sorted(NODES)
    )
    NEW = targets.render(MACHINES)

    def test_nobody_where_there_is_no_prometheus_or_its_files_are_broken(self) -> None:
        for text in ("", "}", "- 1", "[{labels: 3}]"):
            assert targets.asked_in_clear(text, text) == set()
            assert targets.asked_in_clear(prometheus_config(tls=False), text) == set()

    def test_all_nodes_where_tls_was_off_whichever_release_wrote_the_files(self) -> None:
        before = self.NEW.replace("controller", "node")

        assert targets.asked_in_clear(prometheus_config(tls=False), before) == self.NODES
        assert targets.asked_in_clear(prometheus_config(tls=False), self.NEW) == self.NODES

    def test_nobody_where_tls_was_on_but_for_nodes_that_no_deploy_has_reached(self) -> None:
        with_tls = prometheus_config(tls=True)
        before = with_tls.replace("job_name: controller", "job_name: another")

        assert targets.asked_in_clear(before, self.NEW) == set()
        assert targets.asked_in_clear(with_tls, self.NEW) == set()
        assert targets.asked_in_clear(with_tls, targets.render(self.MACHINES, ["gpu01"])) == {"gpu01"}
