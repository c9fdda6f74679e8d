"""Many simulated nodes on this host: one server for every address of the loopback network, two ports each.

The text of a node is in two parts, each compressed by itself, as gzip allows: what all nodes share is made once a
second, and a node's own part when it is asked for.
"""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.crowdtext import Nodes

NODE_PORT, GPU_PORT = 19100, 19400
_A_NETWORK = 250


def addresses(count: int) -> Iterator[str]:
    """So many addresses of the loopback network."""
    return (f"127.1.{number // _A_NETWORK}.{number % _A_NETWORK + 1}" for number in range(count))


def _number(address: str) -> int:
    """Which node an address is, counted from 1."""
    _, _, network, host = address.split(".")
    return int(network) * _A_NETWORK + int(host)


class Crowd:
    """The server, in a thread of its own."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._enough = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._shared = b""
        self._slurm = gzip.compress(nodes.slurm.encode(), 1)
        # series and bytes of a text: of a node exporter, of a GPU exporter, of Slurm's metrics
        self.sizes: dict[str, tuple[int, int]] = {"slurm": _size(nodes.slurm)}

    def start(self) -> None:
        """Serve until `stop`."""
        self._renew()
        self.sizes |= {"node": _size(self._nodes.shared() + self._nodes.own(1)), "gpu": _size(self._nodes.gpus(1))}
        self._thread.start()

    def stop(self) -> None:
        """No more answers."""
        self._enough.set()
        self._thread.join()

    async def _serve(self) -> None:
        listening = [
            await asyncio.start_server(talk, "0.0.0.0", port, backlog=2048)  # noqa: S104 (127.0.0.0/8)
            for port, talk in ((NODE_PORT, self._node), (GPU_PORT, self._gpu))
        ]
        while not self._enough.is_set():
            started = time.monotonic()
            await asyncio.to_thread(self._renew)
            await asyncio.sleep(max(0.0, 1 - (time.monotonic() - started)))
        for server in listening:
            server.close()

    def _renew(self) -> None:
        self._shared = gzip.compress(self._nodes.shared().encode(), 1)

    async def _node(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def body(number: int) -> bytes:
            own = gzip.compress(self._nodes.own(number).encode(), 1)
            return self._shared + own + (self._slurm if number == 1 else b"")

        await _talk(reader, writer, body)

    async def _gpu(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _talk(reader, writer, lambda number: gzip.compress(self._nodes.gpus(number).encode(), 1))


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Callable[[int], bytes]) -> None:
    number = _number(writer.get_extra_info("sockname")[0])
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            content = body(number)
            head = (
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Encoding: gzip\r\n"
                f"Content-Length: {len(content)}\r\n\r\n"
            )
            writer.write(head.encode() + content)
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()


def _size(text: str) -> tuple[int, int]:
    return sum(not line.startswith("#") for line in text.splitlines()), len(text)
