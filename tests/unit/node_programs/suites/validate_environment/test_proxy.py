"""What a user gets of a proxy: the answers of one that this test is."""

from __future__ import annotations

import socket
import threading

import pytest

from deepopsctl.node_programs.suites.validate_environment import proxy
from deepopsctl.node_programs.suites.validate_environment.proxy import Answer

REFUSAL = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\n\r\n<p>User: nobody. Node: 192.0.2.11.</p>\n"


def answered(text: str, host: str = "pypi.org") -> Answer:
    """What the client makes of an answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(4096).startswith(f"CONNECT {host}:443 HTTP/1.1\r\n".encode())
                connection.sendall(text.encode())

        thread = threading.Thread(target=serve)
        thread.start()
        load = f"module() {{ export https_proxy=http://127.0.0.1:{port}; }}; export -f module; exec bash"
        answer = proxy.ask(["bash", "-c", f'{load} "${{@:2}}"', "start"], host)
        thread.join()
    return answer


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("HTTP/1.1 200 Connection established\r\n\r\n", "pass", ""),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "fail", "the proxy itself does not reach it (HTTP 503)"),
        (REFUSAL, "fail", "the proxy refuses it"),
        ("", "fail", "no answer of the proxy"),
    ],
)
def test_an_allowed_host_has_to_answer(text: str, status: str, message: str) -> None:
    made = proxy.allowed("n1", "pypi.org", answered(text))

    assert made["status"] == status
    assert message in made["message"]


@pytest.mark.parametrize(
    ("text", "status"),
    [(REFUSAL, "pass"), (REFUSAL.replace("nobody", "-"), "fail"), ("HTTP/1.1 503 x\r\n\r\n", "fail")],
)
def test_another_host_has_to_be_refused_by_the_name_of_the_user(text: str, status: str) -> None:
    assert proxy.refused("n1", answered(text))["status"] == status
