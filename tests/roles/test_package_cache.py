"""The program that apt asks for a proxy: the cache where it answers, and nothing where it does not."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment

from tests.support.paths import ROOT

TEMPLATE = ROOT / "roles" / "package_cache" / "templates" / "package-cache.py.j2"


def ask(directory: Path, port: int, url: str) -> str:
    """What the program prints for apt."""
    environment = Environment(autoescape=False, keep_trailing_newline=True)  # noqa: S701 (a program, no page)
    environment.filters["to_json"] = json.dumps
    values = {"ansible_managed": "x", "package_cache_address": "127.0.0.1", "package_cache_port": port}
    path = directory / "program"
    path.write_text(environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(values), encoding="utf-8")
    done = subprocess.run([sys.executable, "-IS", path, url], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def answering(server: socket.socket, answer: bytes) -> None:
    """Answer one connection; an empty answer closes it, as libwrap does."""

    def serve() -> None:
        connection, _address = server.accept()
        with connection:
            if answer:
                connection.recv(100)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()


def test_a_cache_that_answers_is_apts_proxy_for_http_alone(tmp_path: Path, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    answering(listener, b"HTTP/1.1 406 Usage Information\r\n\r\n")

    assert ask(tmp_path, port, "http://deb.debian.org/debian") == f"http://127.0.0.1:{port}/\n"
    assert ask(tmp_path, port, "https://deb.debian.org/debian") == ""


def test_one_that_closes_the_connection_is_not(tmp_path: Path, listener: socket.socket) -> None:
    answering(listener, b"")

    assert ask(tmp_path, listener.getsockname()[1], "http://deb.debian.org/debian") == ""


def test_one_that_hangs_or_is_off_is_not(tmp_path: Path, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    # the kernel completes the connection, and no answer comes
    assert ask(tmp_path, port, "http://deb.debian.org/debian") == ""
    listener.close()
    assert ask(tmp_path, port, "http://deb.debian.org/debian") == ""
