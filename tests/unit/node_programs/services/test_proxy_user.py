"""Whose connection it is: a node's answer about a real connection of this process, and what Squid is given."""

from __future__ import annotations

import io
import os
import pwd
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.proxy_user import helper, responder
from tests.support import ports
from tests.support.silent_clients import closed_by_server, silent_clients

ME = pwd.getpwuid(os.geteuid()).pw_name


@contextmanager
def answering(*proxies: str, on: int = 0) -> Iterator[int]:
    """A node that answers these proxies; its port."""
    with responder.Server(on, frozenset(proxies)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def connected(family: socket.AddressFamily, address: str) -> Iterator[tuple[str, int, int]]:
    """A connection of this process to a proxy: where from, by which port, to which port."""
    with socket.socket(family) as proxy:
        proxy.bind((address, 0))
        proxy.listen()
        with socket.create_connection(proxy.getsockname()[:2]) as client:
            yield address, client.getsockname()[1], proxy.getsockname()[1]


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "127.0.0.1")] + [(socket.AF_INET6, "::1")] * socket.has_dualstack_ipv6(),
)
def test_the_owner_of_a_connection_is_named(family: socket.AddressFamily, address: str) -> None:
    with answering(address) as port, connected(family, address) as connection:
        assert helper.Nodes(port).user(*connection) == ME


def test_a_connection_to_somebody_else_is_nobodys() -> None:
    with answering("127.0.0.1") as port, connected(socket.AF_INET, "127.0.0.1") as (address, local, remote):
        assert helper.Nodes(port).user(address, local, remote + 1 if remote < 65535 else 1) == "-"


def test_who_is_no_proxy_gets_no_answer() -> None:
    with answering("192.0.2.1") as port, connected(socket.AF_INET, "127.0.0.1") as connection:
        assert helper.Nodes(port).user(*connection) == "-"


def test_an_ipv4_connection_of_a_socket_for_both_families_is_found(tmp_path: Path) -> None:
    table, mapped = tmp_path / "tcp6", "0000000000000000FFFF0000"
    row = f"0: {mapped}0B0200C0:D431 {mapped}010200C0:0C38 01 0:0 0:0 0 60010 0 777 1 0 20"
    table.write_text(f"sl local_address ...\n{row}\n", encoding="ascii")

    assert responder.owner("192.0.2.11", 0xD431, "192.0.2.1", 3128, [str(table)]) == 60010


def test_the_same_port_of_another_address_of_the_node_is_another_connection(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    rows = [f"0: {own}0200C0:D431 010200C0:0C38 01 0:0 0:0 0 {uid} 0 777 1 0 20" for own, uid in (("0C", 1), ("0B", 2))]
    table.write_text("\n".join(["sl local_address ...", *rows, ""]), encoding="ascii")

    assert [responder.owner(f"192.0.2.{own}", 0xD431, "192.0.2.1", 3128, [str(table)]) for own in (11, 12, 13)] == [
        2, 1, None,
    ]  # fmt: skip


def test_the_name_of_a_user_cannot_say_more_to_squid() -> None:
    lines = [b"1, 2 : USERID : UNIX : alice user=root\r\n", b"1, 2 : USERID : UNIX : alice\r\n"]
    with ports.answering(*lines) as port:
        nodes = helper.Nodes(port)
        users = [nodes.user("127.0.0.1", 1, 2) for _ in lines]

    assert users == ["-", "alice"]


def test_each_question_of_squid_gets_the_answer_of_its_channel() -> None:
    answers = io.StringIO()
    with answering("127.0.0.1") as port, connected(socket.AF_INET, "127.0.0.1") as connection:
        question = "7 {} {} {}\n".format(*connection)
        helper.serve(io.StringIO(question + "8 nonsense\n"), answers, helper.Nodes(port))

    assert sorted(answers.getvalue().splitlines()) == [f"7 OK user={ME} message={ME}", "8 OK"]


def test_a_node_that_does_not_answer_is_asked_once() -> None:
    with socket.socket() as taken:
        # bound, so that no other process gets the port, and nothing listens
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        nodes = helper.Nodes(port)
        assert nodes.user("127.0.0.1", 1, 2) == "-"

        with answering("127.0.0.1", on=port), connected(socket.AF_INET, "127.0.0.1") as connection:
            assert nodes.user(*connection) == "-"


def test_many_clients_that_say_nothing_neither_fill_memory_nor_keep_a_proxy_waiting() -> None:
    with (
        answering("127.0.0.1", "127.0.0.2") as port,
        connected(socket.AF_INET, "127.0.0.1") as connection,
        silent_clients(port, 1000) as silent,
        # a proxy of which a user does the same
        silent_clients(port, 600, source="127.0.0.1"),
    ):
        # not even the first of those that wait for an answer
        assert threading.active_count() < responder.IN_ALL + 10
        assert helper.Nodes(port, limit_s=20).user(*connection) == ME
        assert closed_by_server(silent) == len(silent)


def test_a_node_without_descriptors_answers_again() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with answering("127.0.0.1") as port, connected(socket.AF_INET, "127.0.0.1") as connection:
        there = len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (there + 40, limits[1]))
        try:
            with suppress(OSError), silent_clients(port, 60, source="127.0.0.1"):
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert helper.Nodes(port, limit_s=20).user(*connection) == ME
