"""`deepops-gpumetrics` on the wheels that are pinned, as a node unpacks them, with a stand-in for NVIDIA's library."""

from __future__ import annotations

import http.client
import os
import platform
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import new_authority
from deepopsctl.gpus.wheels import cache_directory, fetch_for
from deepopsctl.node_programs.services import gpu_metrics
from tests.integration.monitoring.exporters import Asked
from tests.integration.monitoring.replay import TEXTS
from tests.support.cluster import wait_until
from tests.support.monitoring_roles import GPU01, exporter_files
from tests.support.node_modules import load
from tests.support.paths import FAKES, ROOT
from tests.support.ports import free_port, listens
from tests.support.role_templates import render
from tests.support.silent_clients import memory_mb, silent_clients

node_wheels = load("node.wheels")
STANDIN = FAKES / "nvml_metrics.c"
PATIENCE_S = 120
START = (
    "import sys; sys.path.insert(0, {above!r}); "
    "from node_programs.services.gpu_metrics.cli import main; sys.exit(main())"
)
NAMES = re.compile(r"^(\w+)(?:\{| )", re.MULTILINE)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned wheels, fetched and unpacked as the role does it."""
    versions = yaml.safe_load((ROOT / "group_vars" / "all" / "versions.yml").read_text(encoding="utf-8"))
    entries, architecture = versions["deepops_nvitop"]["libraries"], platform.machine()
    wheels = {
        str(fetch_for(architecture, entry, cache_directory(os.environ))): node_wheels.wheel_for(entry, architecture)[
            "sha256"
        ]
        for entry in entries.values()
    }
    directory = tmp_path_factory.mktemp("node") / "nvitop-exporter"
    node_wheels.unpack(str(directory), wheels)
    return directory


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the stand-in under the name of NVIDIA's library."""
    directory = tmp_path_factory.mktemp("driver")
    argv = ["cc", "-shared", "-fPIC", "-o", str(directory / "libnvidia-ml.so.1"), str(STANDIN)]
    subprocess.run(argv, check=True, capture_output=True)
    return directory


class Running:
    def __init__(self, process: subprocess.Popen[str], port: int, driver_state: Path, log: Path) -> None:
        self.process, self.port, self.driver_state, self.log = process, port, driver_state, log

    def text(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE_S) as answer:
            body: bytes = answer.read()
        return body.decode()

    def until(self, there: Callable[[str], bool]) -> str:
        texts = [""]

        def is_there() -> bool:
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            # before it listens it serves nothing
            with suppress(OSError):
                texts.append(self.text())
            return there(texts[-1])

        wait_until("its text is as wanted", is_there, details=lambda: f"{self.log.read_text('utf-8')}\n{texts[-1]}")
        return texts[-1]


def certificate_options(directory: Path) -> list[str]:
    """The certificate options of a node's unit, for those in a directory of the test."""
    unit = render(
        "monitoring_node",
        "deepops-gpumetrics.service.j2",
        **{**GPU01, "__monitoring_node_tls": True, "__monitoring_node_tls_directory": str(directory)},
    )
    options = ("--certificate=", "--key=", "--authority=")
    result = [word for word in unit.split() if word.startswith(options)]
    assert len(result) == len(options)
    return result


@contextmanager
def running(
    libraries: Path, tmp_path: Path, driver: Path | None, lost: str = "", tls: Path | None = None
) -> Iterator[Running]:
    port = free_port()
    driver_state = tmp_path / "driver-state"
    driver_state.mkdir()
    if lost:
        (driver_state / "lost").write_text(lost, encoding="utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "STANDIN_NVML": str(driver_state),
        "LD_LIBRARY_PATH": str(driver or tmp_path),
    }
    above = str(Path(str(gpu_metrics.__file__)).parents[3])
    options = ["--libraries", str(libraries), "--address", "127.0.0.1", "--port", str(port), "--interval", "0.2"]
    options += certificate_options(tls) if tls else []
    argv = [sys.executable, "-B", "-S", "-c", START.format(above=above), *options]
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(argv, env=environment, stderr=log, text=True)
    try:
        yield Running(process, port, driver_state, tmp_path / "log")
    finally:
        process.kill()
        process.wait()


def has_read(text: str) -> bool:
    return "gpu_utilization_Percentage{" in text and "deepops_gpu_ecc_uncorrected{" in text


def with_value(text: str, name: str, value: float) -> list[str]:
    """Which GPUs have this value of a metric, by their index."""
    return re.findall(rf'^{name}\{{.*index="(\d)".*\}} {value:.1f}$', text, re.MULTILINE)


def test_it_serves_the_samples_of_the_recorded_text_and_neither_processes_nor_the_host(
    libraries: Path, driver: Path, tmp_path: Path
) -> None:
    wanted = set(NAMES.findall((TEXTS / "nvitop.prom").read_text(encoding="utf-8")))
    with running(libraries, tmp_path, driver) as program:
        # in the middle of the first round some of them are not there yet
        text = program.until(lambda text: has_read(text) and wanted <= set(NAMES.findall(text)))

    names = set(NAMES.findall(text))
    assert names == wanted
    assert not [name for name in names if name.startswith(("host_", "process_"))]


def test_an_xid_and_the_drivers_recovery_action_are_exported_for_their_gpu_the_latter_until_it_is_done(
    libraries: Path, driver: Path, tmp_path: Path
) -> None:
    with running(libraries, tmp_path, driver) as program:
        program.until(has_read)
        (program.driver_state / "xid").write_text("2 79", encoding="utf-8")
        (program.driver_state / "recovery").write_text("2 1", encoding="utf-8")
        program.until(lambda text: with_value(text, "deepops_gpu_xid_last", 79) == ["2"])
        program.until(lambda text: with_value(text, "deepops_gpu_recovery_action", 1) == ["2"])
        (program.driver_state / "recovery").unlink()
        program.until(lambda text: with_value(text, "deepops_gpu_recovery_action", 0) == list("0123"))


def test_a_node_without_a_driver_is_served_and_logged_as_one(libraries: Path, tmp_path: Path) -> None:
    with running(libraries, tmp_path, driver=None) as program:
        text = program.until(lambda text: "deepops_gpu_driver_up 0.0" in text)
        program.until(lambda _: "no NVIDIA driver" in program.log.read_text(encoding="utf-8"))

    assert "gpu_utilization_Percentage{" not in text


def test_it_ends_where_a_gpu_is_lost_so_that_it_is_restarted_without_it(
    libraries: Path, driver: Path, tmp_path: Path
) -> None:
    with running(libraries, tmp_path, driver) as program:
        program.until(has_read)
        (program.driver_state / "lost").write_text("1", encoding="utf-8")
        assert program.process.wait(PATIENCE_S) == 0

    assert "the GPUs have changed" in program.log.read_text(encoding="utf-8")


def test_a_gpu_that_is_lost_from_the_beginning_hides_no_other(libraries: Path, driver: Path, tmp_path: Path) -> None:
    with running(libraries, tmp_path, driver, lost="1") as program:
        text = program.until(has_read)

    known = re.findall(r'gpu_memory_total_MiB\{.*index="([0-9:]+)".*\} [0-9]', text)
    assert known == ["0", "2", "3", "3:0", "3:1"]


def test_with_certificates_it_answers_to_the_monitoring_host_alone(libraries: Path, tmp_path: Path) -> None:
    directory = exporter_files(tmp_path / "gpu01", "gpu01")
    monitoring = exporter_files(tmp_path / "monitoring", "ctl1")
    stranger = exporter_files(tmp_path / "stranger", "ctl1", authority=new_authority(validity.today()))
    with running(libraries, tmp_path, driver=None, tls=directory) as program:
        asked = Asked(program.port, directory)
        wait_until("it listens", lambda: program.process.poll() is None and listens(program.port))

        assert asked.answer(monitoring) == 200
        # no certificate; another cluster's node of that name; another node of this cluster
        for shown, name in ((None, ""), (stranger, "scraper"), (directory, "node"), (monitoring, "node")):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                asked.answer(shown, name)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            # what speaks no TLS
            program.text()
        with socket.create_connection(("127.0.0.1", program.port)):
            # a client that sends nothing delays no other
            assert asked.answer(monitoring) == 200
        assert "127.0.0.1 was refused: [SSL: CERTIFICATE_VERIFY_FAILED]" in program.log.read_text(encoding="utf-8")


@pytest.mark.parametrize("says", [b"", bytes.fromhex("1603010200")], ids=["silent", "half a handshake"])
def test_many_clients_that_say_nothing_neither_fill_memory_nor_keep_prometheus_waiting(
    libraries: Path, tmp_path: Path, says: bytes
) -> None:
    directory = exporter_files(tmp_path / "tls", "gpu01")
    monitoring = exporter_files(tmp_path / "monitoring", "ctl1")
    with running(libraries, tmp_path, driver=None, tls=directory) as program:
        asked = Asked(program.port, directory)
        wait_until("it listens", lambda: program.process.poll() is None and listens(program.port))
        assert asked.answer(monitoring) == 200
        before = memory_mb(program.process.pid)

        with silent_clients(program.port, 600, says), silent_clients(program.port, 600, says, source="127.0.0.1"):
            assert asked.answer(monitoring) == 200
            assert memory_mb(program.process.pid) < before + 30
            assert len(list(Path(f"/proc/{program.process.pid}/task").iterdir())) < 80
