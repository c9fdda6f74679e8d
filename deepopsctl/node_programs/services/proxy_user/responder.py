"""`deepops-ident`: answers the cluster's proxies which user has a connection to them, as the kernel has it.

A proxy learns of connections to itself only, and no other host may ask.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import pwd
import re
import socket
import socketserver
import sys
from collections.abc import Iterator, Sequence

from ..._shared import settings
from ..._shared.connections import BoundedServer, Connections, Log
from ..._shared.settings import SettingsError

CONFIG = "/etc/deepopsctl/ident.json"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LIMIT_S = 5
# each proxy asks 128 questions at once, at most; a user of the proxy's node can ask as well
OF_ONE, IN_ALL = 192, 256
INVALID = 3
_QUESTION = re.compile(rb"\s*(\d{1,5})\s*,\s*(\d{1,5})\s*\r?\n?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it until it is stopped."""
    parser = argparse.ArgumentParser(prog="deepops-ident", description="Answer proxies whose connection they have.")
    parser.add_argument("--config", default=CONFIG, help="proxies and port (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        config = settings.load(options.config)
        proxies, port = [ipaddress.ip_address(each) for each in config["proxies"]], int(config["port"])
    except (SettingsError, KeyError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    with Server(port, frozenset(map(str, proxies))) as server:
        server.serve_forever()
    return 0


class Server(BoundedServer, socketserver.TCPServer):
    """Listens on all addresses of the node; others than the proxies are not answered."""

    allow_reuse_address = True

    def __init__(self, port: int, proxies: frozenset[str], tables: Sequence[str] = TABLES) -> None:
        self.proxies, self.tables = proxies, tables
        self.connections, self.log = Connections(OF_ONE, IN_ALL), Log()
        self.address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        """For both families."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def verify_request(self, request: object, client_address: tuple[str, int]) -> bool:  # noqa: ARG002 (of the base)
        """Whether to answer."""
        return plain(client_address[0]) in self.proxies


class _Handler(socketserver.StreamRequestHandler):
    timeout = LIMIT_S
    server: Server

    def handle(self) -> None:
        try:
            match = _QUESTION.fullmatch(self.rfile.readline(64))
            if match:
                local, remote = int(match[1]), int(match[2])
                # asked at the address that the connection comes from; a node's other addresses have the same ports
                own, peer = plain(self.connection.getsockname()[0]), plain(self.client_address[0])
                self.wfile.write(answer(local, remote, owner(own, local, peer, remote, self.server.tables)).encode())
        except OSError:
            pass


def answer(local: int, remote: int, uid: int | None) -> str:
    """A line of RFC 1413."""
    if uid is None:
        return f"{local}, {remote} : ERROR : NO-USER\r\n"
    return f"{local}, {remote} : USERID : UNIX : {name_of(uid)}\r\n"


def name_of(uid: int) -> str:
    """The login name of a user id; an id without one, of a container's user, is shown as a number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def owner(own: str, local: int, peer: str, remote: int, tables: Sequence[str] = TABLES) -> int | None:
    """The user id of the socket that is connected from an address and port here to the peer's; None without one."""
    begins, ends = (
        tuple(f"{notation}:{port:04X}" for notation in notations(address))
        for address, port in ((own, local), (peer, remote))
    )
    for table in tables:
        for fields in _rows(table):
            # what is closed already has neither owner nor inode
            if fields[1] in begins and fields[2] in ends and fields[9] != "0":
                return int(fields[7])
    return None


def notations(address: str) -> list[str]:
    """An address as the kernel's tables have it: words in the order of this machine; IPv4 also mapped."""
    plain_one = ipaddress.ip_address(address)
    both = [plain_one, ipaddress.ip_address("::ffff:" + address)] if plain_one.version == 4 else [plain_one]
    return [
        "".join(
            f"{int.from_bytes(each.packed[at : at + 4], sys.byteorder):08X}" for at in range(0, len(each.packed), 4)
        )
        for each in both
    ]


def plain(address: str) -> str:
    """An address without the prefix that IPv4 has on a socket for both families, and without a scope."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def _rows(table: str) -> Iterator[list[str]]:
    if not os.path.exists(table):
        return
    with open(table, encoding="ascii") as stream:
        next(stream, "")
        yield from (line.split() for line in stream)
