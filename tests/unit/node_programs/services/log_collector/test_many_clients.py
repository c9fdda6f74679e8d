"""The TLS proxy as its unit starts it, under many clients that say nothing."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority, new_authority
from tests.support.cluster import wait_until
from tests.support.files import write_files
from tests.support.paths import ROOT
from tests.support.ports import answering
from tests.support.silent_clients import closed_by_server, memory_mb, silent_clients

AUTHORITY = Authority(new_authority(validity.today()))
GPU01 = AUTHORITY.identify("gpu01", [], validity.today())
MAIN = "import sys; from deepopsctl.node_programs.services.log_collector.cli import main; sys.exit(main())"
# the beginning of a handshake that never comes to its end
HELLO = bytes.fromhex("1603010200")
MANY = 600


@dataclass(frozen=True)
class Proxy:
    """One that runs: its port, its process, what it has logged, and a node's certificate."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    both: Path

    def hears_a_node(self) -> bool:
        """Whether a node of the cluster gets through to the store."""
        tls = ssl.create_default_context(cadata=AUTHORITY.certificate)
        tls.load_cert_chain(self.both)
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain,
            tls.wrap_socket(plain, server_hostname="127.0.0.1") as stream,
        ):
            stream.sendall(b"hello\n")
            return stream.recv(100) == b"stored\n"


@contextmanager
def started(directory: Path, descriptors: int, nodes: int) -> Iterator[Proxy]:
    """The program with systemd's socket, so many descriptors, and a store that answers so many nodes."""
    host = AUTHORITY.identify("ctl1", ["127.0.0.1"], validity.today())
    write_files(directory, {
        "node.crt": host.certificate, "node.key": host.key, "authority.crt": AUTHORITY.certificate,
        "members": "ctl1\ngpu01\n", "both.pem": GPU01.key + GPU01.certificate,
    })  # fmt: skip
    log = directory / "log"
    with answering(*[b"stored\n"] * nodes) as store, socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        names = {"certificate": "node.crt", "key": "node.key", "authority": "authority.crt", "members": "members"}
        options = [f"--{option}={directory / name}" for option, name in names.items()]

        def as_systemd_does() -> None:
            os.dup2(listener.fileno(), 3)
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        argv = [sys.executable, "-c", MAIN, "proxy", *options, f"--store={store}"]
        with (
            log.open("wb") as stderr,
            subprocess.Popen(
                argv,
                cwd=ROOT,
                stderr=stderr,
                pass_fds=(3,),
                preexec_fn=as_systemd_does,  # noqa: PLW1509 - there are no threads yet
            ) as process,
        ):
            try:
                yield Proxy(listener.getsockname()[1], process, log, directory / "both.pem")
            finally:
                process.terminate()


@pytest.mark.parametrize("says", [b"", HELLO], ids=["silent", "half a handshake"])
def test_many_clients_cost_little_memory_and_keep_no_node_out(tmp_path: Path, says: bytes) -> None:
    with started(tmp_path, descriptors=4096, nodes=2) as proxy:
        assert proxy.hears_a_node()
        before = memory_mb(proxy.process.pid)

        # the second half from the address that the node has, too
        with silent_clients(proxy.port, MANY, says), silent_clients(proxy.port, MANY, says, source="127.0.0.1"):
            assert proxy.hears_a_node()
            assert memory_mb(proxy.process.pid) < before + 30

    refusals = [line for line in proxy.log.read_text().splitlines() if "too many connections" in line]
    assert len(refusals) == 2
    assert proxy.process.returncode == 0


def test_clients_without_a_certificate_are_closed_after_some_seconds(tmp_path: Path) -> None:
    with started(tmp_path, descriptors=4096, nodes=0) as proxy, silent_clients(proxy.port, 10) as clients:
        assert closed_by_server(clients) == len(clients)


def test_the_proxy_bears_it_that_there_are_no_descriptors_left(tmp_path: Path) -> None:
    with started(tmp_path, descriptors=24, nodes=1) as proxy:
        with silent_clients(proxy.port, 12), silent_clients(proxy.port, 12, source="127.0.0.3"):
            wait_until("it has met the limit", lambda: "Too many open files" in proxy.log.read_text())
            assert proxy.process.poll() is None
        assert proxy.hears_a_node()
