"""Prometheus, Alertmanager and node exporters as processes of a test, on ports of this host that were free."""

from __future__ import annotations

import json
import os
import resource
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.integration.monitoring.promapi import login
from tests.support.cluster import wait_until
from tests.support.ports import free_port

USER, PASSWORD = "admin", "opensesame"
# of PASSWORD, with the least rounds that bcrypt knows
_HASH = "$2b$04$abcdefghijklmnopqrstuuFuhxWRTXIsURoluSTZ1N4tYaWGn9oOi"


class Server:
    """A process that is there once it is ready to answer, and ends with the test."""

    def __init__(self, argv: Sequence[str], port: int, directory: Path, **environment: str) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        self._log = directory / "log"
        with self._log.open("wb") as log:
            variables = {**os.environ, **environment}
            self._process = subprocess.Popen(list(argv), stdout=log, stderr=log, cwd=directory, env=variables)
        wait_until(f"{argv[0]} answers", self._answers, details=self.log)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """As long as it lasts, nothing that it writes to a file arrives: the kernel refuses files above 0 bytes."""
        before = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            yield
        finally:
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, before)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log()
        headers = login(USER, PASSWORD)
        request = urllib.request.Request(f"{self.url}/-/ready", headers=headers)  # noqa: S310 (our own process)
        try:
            urllib.request.urlopen(request, timeout=5).close()  # noqa: S310 (our own process)
        except urllib.error.HTTPError as error:
            # an exporter has no such page; a Prometheus that is not ready answers with 503
            return error.code == HTTPStatus.NOT_FOUND
        except OSError:
            return False
        return True

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)


def prometheus(directory: Path, config: Mapping[str, object], port: int = 0) -> Server:
    """A Prometheus that wants PASSWORD, with what is in `data` below its directory already."""
    port = port or free_port()
    # JSON is YAML
    (directory / "prometheus.yml").write_text(json.dumps(config))
    argv = [
        "prometheus",
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.config.file={_web_config(directory)}",
        # what fires before Alertmanager was found is sent again soon
        "--rules.alert.resend-delay=1s",
    ]
    return Server(argv, port, directory)


def alertmanager(directory: Path, config: Mapping[str, object] | str, **environment: str) -> Server:
    port = free_port()
    text = config if isinstance(config, str) else json.dumps(config)
    (directory / "alertmanager.yml").write_text(text, encoding="utf-8")
    argv = [
        "prometheus-alertmanager",
        f"--config.file={directory}/alertmanager.yml",
        f"--storage.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.config.file={_web_config(directory)}",
        "--cluster.listen-address=",
    ]
    return Server(argv, port, directory, **environment)


def node_exporter(directory: Path, *collectors: str) -> Server:
    """A node exporter whose text files are in this directory, with these collectors or all."""
    port = free_port()
    argv = [
        "prometheus-node-exporter",
        f"--web.listen-address=127.0.0.1:{port}",
        *(("--collector.disable-defaults",) if collectors else ()),
        *(f"--collector.{name}" for name in collectors),
        f"--collector.textfile.directory={directory}",
    ]
    return Server(argv, port, directory)


def _web_config(directory: Path) -> Path:
    path = directory / "web.yml"
    path.write_text(json.dumps({"basic_auth_users": {USER: _HASH}}))
    return path


@dataclass
class Page:
    """A small web server: the answer of a path is made at each request; requests are recorded."""

    answer: Callable[[str], tuple[int, str]]
    posted: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> Page:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer_request()

            def do_POST(self) -> None:
                page.posted.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                page.logins.append(self.headers.get("Authorization", ""))
                self._answer_request()

            def _answer_request(self) -> None:
                code, text = page.answer(self.path)
                self.send_response(code)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer((self.host, 0), Handler)
        if self.tls:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.address = f"{self.host}:{self.port}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
