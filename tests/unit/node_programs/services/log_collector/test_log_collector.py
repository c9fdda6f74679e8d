"""The log host's own programs: the TLS proxy, with real TLS on loopback, and the limits of the collection."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority, Identity, new_authority
from deepopsctl.node_programs.services.log_collector import cli, tidy, tls_proxy
from deepopsctl.node_programs.services.log_collector.places import address_of, files_of
from deepopsctl.node_programs.services.log_collector.tidy import DAY_S, Bounds, Journal, too_much
from tests.support.files import write_files

NOW = 1_800_000_000.0
AUTHORITY = Authority(new_authority(validity.today()))
GPU01 = AUTHORITY.identify("gpu01", [], validity.today())
EXPIRED = AUTHORITY.identify("gpu01", [], validity.today() - timedelta(days=800))
STRANGER = Authority(new_authority(validity.today())).identify("gpu01", [], validity.today())


def journal(node: str, age_days: float, size: int = 10, *, closed: bool = True) -> Journal:
    return Journal(f"{node}@{age_days}", node, size, NOW - DAY_S * age_days, closed)


def test_who_fills_the_room_pays_with_its_oldest_file() -> None:
    quiet = [journal("quiet", 20, 100), journal("quiet", 1, 100)]
    mad = [journal("mad", 1, 400), journal("mad", 3, 400), journal("mad", 2, 400)]

    gone, closing = too_much([*quiet, *mad], 1000)

    assert gone == [mad[1]]
    assert closing == []
    # where that is not enough, what is written to is closed
    written, older = journal("mad", 0, 2000, closed=False), journal("mad", 1, 100)
    assert too_much([written, older, journal("quiet", 9, 100)], 1000) == ([older], [written])
    assert too_much([journal("a", 1, 500), journal("b", 1, 500)], 1000) == ([], [])


def make(directory: Path, name: str, content: bytes, age_days: float = 0) -> Path:
    path = directory / name
    path.write_bytes(content)
    os.utime(path, (NOW - age_days * DAY_S,) * 2)
    return path


MONTH = Bounds(30 * DAY_S, 10**12)
START = "systemctl start deepops-logs-store.service"


def run(directory: Path, now_days: float = 0, bounds: Bounds = MONTH) -> list[str]:
    """One cleanup, so many days after NOW: what it did, and with systemd."""
    commands: list[str] = []
    done = tidy.tidy(str(directory), bounds, NOW + now_days * DAY_S, lambda argv: commands.append(" ".join(argv)))
    return [*done, *commands]


def run_all(directory: Path, days: float) -> list[str]:
    """All cleanups of the time from NOW on, one every ten minutes."""
    return [line for number in range(int(days * 144)) for line in run(directory, number / 144)]


def test_open_files_are_closed_after_a_quarter_of_the_time_while_nobody_writes(tmp_path: Path) -> None:
    make(tmp_path, "remote-127.16.0.1.journal", b"x")

    assert run_all(tmp_path, 7.4) == []
    done = run_all(tmp_path, 8.5)

    closed = tmp_path / f"remote-127.16.0.1@{int(NOW * 1e6):016x}.journal"
    assert done == [f"closed {closed}", "systemctl stop deepops-logs-store.service", START]
    assert list(tmp_path.glob("*.journal")) == [closed]


def test_what_is_closed_and_older_than_is_kept_goes(tmp_path: Path) -> None:
    old = make(tmp_path, "remote-127.16.0.1@1-2-3.journal", b"x", age_days=29.9)
    young = make(tmp_path, "remote-127.16.0.1@1-2-4.journal", b"x", age_days=29)
    written = make(tmp_path, "remote-127.16.0.1.journal", b"x", age_days=40)
    make(tmp_path, "remote-127.16.0.2.journal", b"x")

    run(tmp_path)
    assert old.exists()
    run_all(tmp_path, 0.2)

    assert [old.exists(), young.exists(), written.exists()] == [False, True, True]


def test_a_clock_that_jumps_ahead_empties_nothing(tmp_path: Path) -> None:
    """What comes after the jump has its date from it: the newest entry says nothing of the clock."""
    closed = make(tmp_path, "remote-127.16.0.1@1-2-3.journal", b"x", age_days=2)
    written = make(tmp_path, "remote-127.16.0.1.journal", b"x")
    run(tmp_path)

    for number in range(300):
        days = 3650 + number * 300 / DAY_S
        os.utime(written, (NOW + days * DAY_S,) * 2)
        assert not [line for line in run(tmp_path, days) if line.startswith(("removed", "closed"))]

    assert closed.exists()
    assert written.exists()


def test_a_clock_that_is_wrong_at_the_first_run_empties_nothing(tmp_path: Path) -> None:
    closed = make(tmp_path, "remote-127.16.0.1@1-2-3.journal", b"x", age_days=2)

    (message,) = run(tmp_path, 3650)

    assert closed.exists()
    assert "the clock is 3651 days ahead" in message


def test_after_a_clock_that_was_wrong_journals_age_again(tmp_path: Path) -> None:
    old = make(tmp_path, "remote-127.16.0.1@1-2-3.journal", b"x", age_days=29)
    make(tmp_path, "remote-127.16.0.2.journal", b"x")
    run(tmp_path)
    run(tmp_path, 3650)

    run_all(tmp_path, 8)

    assert not old.exists()
    assert list(tmp_path.glob("remote-127.16.0.2@*"))


def test_the_mark_of_a_clock_that_was_ahead_closes_no_file_again_and_again(tmp_path: Path) -> None:
    make(tmp_path, tidy.CLOSED, b"", age_days=-3650)
    done = []

    for number in range(3):
        make(tmp_path, "remote-127.16.0.1.journal", b"x")
        done += run(tmp_path, number / 1000)

    assert done.count(START) == 1


def test_a_node_that_fills_the_room_is_closed_and_removed_in_one_go(tmp_path: Path) -> None:
    mad = make(tmp_path, "remote-127.16.0.1.journal", bytes(400_000))
    quiet = make(tmp_path, "remote-127.16.0.2.journal", b"x")

    run(tmp_path, bounds=Bounds(30 * DAY_S, 100_000))

    assert not mad.exists()
    assert [path.name for path in tmp_path.glob("remote-*")] == [quiet.name]


def test_the_store_is_started_again_where_a_file_can_not_be_closed(tmp_path: Path) -> None:
    make(tmp_path, "remote-127.16.0.1.journal", bytes(400_000))
    commands = []

    def remove_first(argv: Sequence[str]) -> None:
        commands.append(" ".join(argv))
        (tmp_path / "remote-127.16.0.1.journal").unlink(missing_ok=True)

    with pytest.raises(FileNotFoundError):
        tidy.tidy(str(tmp_path), Bounds(30 * DAY_S, 100_000), NOW, remove_first)

    assert commands[-1] == START


def test_each_node_has_an_address_of_its_own_and_keeps_it() -> None:
    names = [f"gpu{number:04}" for number in range(1000)]

    assert len({address_of(name) for name in names}) == len(names)
    assert all(address_of(name).startswith("127.") and not address_of(name).startswith("127.0.") for name in names)
    assert files_of("gpu01") == "/var/log/journal/remote/remote-127.34.181.71[.@]*"


@contextmanager
def opened_proxy(tmp_path: Path) -> Iterator[tuple[int, list[str]]]:
    """A TLS proxy with a stand-in for the store behind it, which answers what it hears and notes from whom."""
    heard: list[str] = []
    host = AUTHORITY.identify("ctl1", ["127.0.0.1"], validity.today())
    files = {"certificate": host.certificate, "key": host.key, "authority": AUTHORITY.certificate}
    write_files(tmp_path, {**files, "members": "ctl1\ngpu01\n"})
    listener = socket.create_server(("127.0.0.1", 0))
    ready: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(writer.get_extra_info("peername")[0])
        while line := await reader.readline():
            writer.write(b"heard " + line)
            await writer.drain()
        writer.close()

    async def main() -> None:
        store = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = store.sockets[0].getsockname()[1]
        tls = tls_proxy.context(*(str(tmp_path / name) for name in files))
        proxy = tls_proxy.serve(listener, tls, str(tmp_path / "members"), ("127.0.0.1", port))
        serving = asyncio.ensure_future(proxy)
        ready.append((asyncio.get_running_loop(), serving))
        await asyncio.wait([serving])
        store.close()

    thread = Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        yield listener.getsockname()[1], heard
    finally:
        loop, serving = ready[0]
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()


@contextmanager
def connected(port: int, identity: Identity | None, tmp_path: Path) -> Iterator[ssl.SSLSocket]:
    tls = ssl.create_default_context(cadata=AUTHORITY.certificate)
    if identity:
        both = tmp_path / "both.pem"
        both.write_text(identity.key + identity.certificate, encoding="utf-8")
        tls.load_cert_chain(both)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        tls.wrap_socket(plain, server_hostname="127.0.0.1") as stream,
    ):
        yield stream


def output(port: int, identity: Identity | None, tmp_path: Path) -> bytes:
    """What comes back through the proxy; b"" where it closes. One that does neither is an error of the test."""
    try:
        with connected(port, identity, tmp_path) as stream:
            stream.sendall(b"hello\n")
            return stream.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.mark.parametrize("identity", [None, STRANGER, EXPIRED], ids=["none", "of another cluster", "of last year"])
def test_whoever_has_no_certificate_of_the_cluster_stays_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], identity: Identity | None
) -> None:
    with opened_proxy(tmp_path) as (port, heard):
        assert output(port, identity, tmp_path) == b""
        assert output(port, GPU01, tmp_path) == b"heard hello\n"
    assert len(heard) == 1
    assert "127.0.0.1 was refused: [SSL" in capsys.readouterr().err


def test_who_talks_no_tls_is_refused_and_who_says_nothing_keeps_nobody_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened_proxy(tmp_path) as (port, heard):
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"POST /upload HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):
                assert plain.recv(100) == b""
        with socket.create_connection(("127.0.0.1", port)):
            assert output(port, GPU01, tmp_path) == b"heard hello\n"
    assert heard == [address_of("gpu01")]
    assert "was refused" in capsys.readouterr().err


def test_a_node_that_left_the_cluster_is_refused_by_name_though_its_certificate_is_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu09 = AUTHORITY.identify("gpu09", [], validity.today())
    with opened_proxy(tmp_path) as (port, heard):
        assert output(port, gpu09, tmp_path) == b""
        (tmp_path / "members").write_text("gpu01\ngpu09\n", encoding="utf-8")
        assert output(port, gpu09, tmp_path) == b"heard hello\n"
    assert heard == [address_of("gpu09")]
    assert "gpu09 (127.0.0.1) was refused: it is not a node of this cluster" in capsys.readouterr().err


def test_who_is_taken_out_while_it_sends_is_heard_no_more(tmp_path: Path) -> None:
    with opened_proxy(tmp_path) as (port, _), connected(port, GPU01, tmp_path) as stream:
        stream.sendall(b"one\n")
        assert stream.recv(100) == b"heard one\n"
        (tmp_path / "members").write_text("ctl1\n", encoding="utf-8")
        stream.sendall(b"two\n")
        assert stream.recv(100) == b""


def test_a_proxy_without_its_files_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {f"--{option}={tmp_path / 'gone'}" for option in ("certificate", "key", "authority", "members")}

    assert cli.main(["proxy", *files, "--store=19531"]) == cli.FAILED
    assert "No such file" in capsys.readouterr().err


def test_without_the_list_of_nodes_nobody_is_let_in(tmp_path: Path) -> None:
    assert not tls_proxy.is_member(str(tmp_path / "gone"), "gpu01")
