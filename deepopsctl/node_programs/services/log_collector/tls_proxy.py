"""TLS proxy with mutual authentication; it forwards a node's data unchanged to systemd-journal-remote.

A removed node is refused although its certificate is still valid. Any host that reaches the port can open connections:
they are bounded by address and in all, and none costs more than a descriptor before it has sent the first byte of TLS.

Why: docs/develop/decisions/tls-in-front-of-journal.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from functools import lru_cache
from typing import Callable

from ..._shared.connections import PASSING, PAUSE_S, SHORTAGES, Connections, Log
from .places import address_of

CHUNK = 1 << 16
HANDSHAKE_S = 5
# without a certificate yet, by address; a node has one
WAITING_OF_ONE, WAITING = 16, 256
# by the name in the certificate: one, and what it has lost without a word; in all: by the list of nodes
SENDING_OF_ONE, SENDING = 4, 16_384
# asyncio's buffer for each TLS connection, which is 256 kB otherwise
TLS_BUFFER = CHUNK
FIRST_OF_TLS = b"\x16"
# a node that lost power does not close its connection
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
NO_MEMBER = "it is not a node of this cluster"
_GONE = (OSError, EOFError, asyncio.TimeoutError)


def is_member(path: str, name: str) -> bool:
    """Whether a node is in the file of the cluster's nodes, a name per line; False for all without the file."""
    # by the file as it is now: a certificate is valid for a year, a node may be removed at any time
    try:
        status = os.stat(path)
        return name in _names(path, status.st_ino, status.st_mtime_ns, status.st_size)
    except OSError:
        return False


@lru_cache(maxsize=1)
def _names(path: str, *_version: int) -> frozenset[str]:
    with open(path, encoding="utf-8") as stream:
        return frozenset(stream.read().split())


def context(certificate: str, key: str, authority: str) -> ssl.SSLContext:
    """The proxy's certificate, and the authority of accepted clients."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(certificate, key)
    tls.load_verify_locations(authority)
    return tls


class _Server:
    """What all connections share."""

    def __init__(self, tls: ssl.SSLContext, members: str, store: tuple[str, int]) -> None:
        self.tls, self.members, self.store = tls, members, store
        self.waiting = Connections(WAITING_OF_ONE, WAITING)
        self.sending = Connections(SENDING_OF_ONE, SENDING)
        self.log = Log()


async def serve(listener: socket.socket, tls: ssl.SSLContext, members: str, store: tuple[str, int]) -> None:
    """Serve until cancelled. `members`: path of the file with the nodes' names."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER  # type: ignore[attr-defined]  # not in the stubs
    server = _Server(tls, members, store)
    listener.settimeout(0)
    connections = set()
    while True:
        try:
            connection, peer = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            await _make_room(server, error)
            continue
        place = str(peer[0])
        task = asyncio.ensure_future(_receive(connection, place, server))
        # asyncio holds only weak references to tasks
        connections.add(task)
        task.add_done_callback(connections.discard)
        task.add_done_callback(server.waiting.remove)
        task.add_done_callback(server.sending.remove)
        crowd = server.waiting.add(place, task, task.cancel)
        if crowd:
            server.log(f"{crowd} was refused: too many connections without a certificate")


async def _make_room(server: _Server, error: OSError) -> None:
    """The listener stays, whatever accept() meets."""
    if error.errno not in PASSING:
        raise error
    if error.errno in SHORTAGES:
        crowd = server.waiting.close_oldest() or "no client"
        server.log(f"{error.strerror}: the oldest connection of {crowd} was closed")
    await asyncio.sleep(PAUSE_S)


async def _receive(connection: socket.socket, place: str, server: _Server) -> None:
    try:
        reader, writer = await _encrypted(connection, server.tls)
    except _GONE as error:
        server.log(f"{place} was refused: {error or 'no data'}")
        return
    opened = [writer]
    try:
        name = _common_name(writer)
        if not is_member(server.members, name):
            server.log(f"{name} ({place}) was refused: {NO_MEMBER}")
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (this runs in one)
        server.waiting.remove(task)
        if server.sending.add(name, task, task.cancel):
            server.log(f"{name} ({place}) has too many connections: its oldest was closed")
        # from the node's own address: systemd-journal-remote writes a file for each
        onward = await asyncio.open_connection(*server.store, local_addr=(address_of(name), 0))
        opened.append(onward[1])
        await asyncio.gather(
            _pass_on(reader, onward[1], lambda: is_member(server.members, name)),
            _pass_on(onward[0], writer, lambda: True),
        )
    except asyncio.CancelledError:
        for each in opened:
            each.transport.abort()
        raise
    except OSError as error:
        host, port = server.store
        server.log(f"{name}: {host}:{port}: {error.strerror or error}")
    finally:
        for each in opened:
            each.close()


async def _encrypted(
    connection: socket.socket, tls: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The connection after the handshake, which one that is silent does not even begin."""
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(_first_byte(connection), HANDSHAKE_S)
    except BaseException:
        connection.close()
        raise
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _first_byte(connection: socket.socket) -> None:
    """Wait until a handshake begins, without a buffer for it."""
    connection.settimeout(0)
    _enable_keepalive(connection)
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def note() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection, note)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    if connection.recv(1, socket.MSG_PEEK) != FIRST_OF_TLS:
        raise EOFError("it does not speak TLS")


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_allowed: Callable[[], bool]) -> None:
    """Forward until one side closes, or the client is no longer allowed; then close the other side."""
    with contextlib.suppress(*_GONE):
        while True:
            chunk = await reader.read(CHUNK)
            if not chunk or not is_allowed():
                break
            writer.write(chunk)
            await writer.drain()
    writer.close()


def _common_name(writer: asyncio.StreamWriter) -> str:
    subject = (writer.get_extra_info("peercert") or {}).get("subject", ())
    return next((str(value) for part in subject for key, value in part if key == "commonName"), "")


def _enable_keepalive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
