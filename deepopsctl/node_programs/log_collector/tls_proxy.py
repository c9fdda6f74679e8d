"""TLS proxy with mutual authentication; it forwards a node's data unchanged to systemd-journal-remote.

A removed node is refused although its certificate is still valid.

Debian builds systemd-journal-remote without GnuTLS. So it can't authenticate clients itself.
Not rsyslog: it gives no rule the name in the sender's certificate (docs/operate/logs.md has what was measured).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from functools import lru_cache
from typing import Callable, FrozenSet, Tuple

from .places import address_of

CHUNK = 1 << 16
HANDSHAKE_S = 10
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
def _names(path: str, *_version: int) -> FrozenSet[str]:
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


async def serve(listener: socket.socket, tls: ssl.SSLContext, members: str, store: Tuple[str, int]) -> None:
    """Serve until cancelled. `members`: path of the file with the nodes' names."""
    listener.settimeout(0)
    connections = set()
    while True:
        connection, place = await asyncio.get_running_loop().sock_accept(listener)
        task = asyncio.ensure_future(_receive(connection, str(place[0]), tls, members, store))
        # asyncio holds only weak references to tasks
        connections.add(task)
        task.add_done_callback(connections.discard)


async def _receive(
    connection: socket.socket, place: str, tls: ssl.SSLContext, members: str, store: Tuple[str, int]
) -> None:
    loop = asyncio.get_running_loop()
    _enable_keepalive(connection)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
        )
    except _GONE as error:
        _log("{} was refused: {}".format(place, error or "no data"))
        return
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    name = _common_name(writer)
    if not is_member(members, name):
        _log("{} ({}) was refused: {}".format(name, place, NO_MEMBER))
        writer.close()
        return
    try:
        # from the node's own address: systemd-journal-remote writes a file for each
        onward = await asyncio.open_connection(*store, local_addr=(address_of(name), 0))
    except OSError as error:
        _log("{}: {}:{}: {}".format(name, store[0], store[1], error.strerror or error))
        writer.close()
        return
    await asyncio.gather(
        _pass_on(reader, onward[1], lambda: is_member(members, name)), _pass_on(onward[0], writer, lambda: True)
    )


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


def _log(what: str) -> None:
    sys.stderr.write(what + "\n")
    sys.stderr.flush()
