"""Many simulated nodes on this machine: one server that answers for every loopback address with a real exporter's text.

What it hands out is this machine's own node exporter, asked again each second, so that values move as they do on a
node, with the processors of a GPU node, the samples of some jobs, and a recorded text of the GPUs' exporter.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

# a GPU node's other exporter: its text as it was once
GPUS = Path(__file__).resolve().parent.parent / "tests" / "monitoring" / "texts" / "dcgm.prom"
_CPU = re.compile(r'^(node_cpu_(?:guest_)?seconds_total\{cpu=)"0"(.*\} )(\S+)$')
# what a job's samples are, as the nodes' own program writes them
_JOB = """deepops_job_info{{jobid="{id}",user="user{id}",account="default",partition="gpu"}} 1
deepops_job_cpus{{jobid="{id}"}} 16
deepops_job_cpu_seconds_total{{jobid="{id}"}} {used:.2f}
deepops_job_memory_bytes{{jobid="{id}"}} {memory}
deepops_job_memory_peak_bytes{{jobid="{id}"}} 68719476736
deepops_job_memory_requested_bytes{{jobid="{id}"}} 137438953472
deepops_job_gpu{{jobid="{id}",gpu="{id}",uuid="GPU-{id}"}} 1
"""


def addresses(count: int) -> Iterator[str]:
    """So many addresses of the loopback network."""
    return (f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count))


def widened(text: str, cpus: int) -> str:
    """An exporter's text with the first processor's lines for so many of them."""
    lines = []
    for line in text.splitlines():
        found = _CPU.match(line)
        if found:
            start, rest, value = found.groups()
            lines += [f'{start}"{cpu}"{rest}{float(value) * (1 + cpu / 1000):.2f}' for cpu in range(cpus)]
        elif not line.startswith(("node_cpu_seconds_total{", "node_cpu_guest_seconds_total{")):
            lines.append(line)
    return "\n".join(lines) + "\n"


class Exporter:
    """The node exporter that stands behind all of them, with the samples of some jobs."""

    def __init__(self, port: int, cpus: int, jobs: int, flags: list[str]) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._cpus, self._jobs = cpus, jobs
        self._gpus = GPUS.read_text()
        self._folder = tempfile.TemporaryDirectory(prefix="deepopsctl-bench-text-")
        argv = [
            "prometheus-node-exporter",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--collector.textfile.directory={self._folder.name}",
            *flags,
        ]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def text(self) -> str:
        """What it says now."""
        now = time.monotonic()
        samples = [_JOB.format(id=number, used=now * 16, memory=int(now * 1e6)) for number in range(self._jobs)]
        (Path(self._folder.name) / "jobs.prom").write_text("".join(samples))
        with urllib.request.urlopen(self._url, timeout=10) as answer:  # noqa: S310 (our own process)
            return widened(answer.read().decode(), self._cpus) + self._gpus

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


class Crowd:
    """The server: every address of the loopback network, one port, one text that is renewed each second."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._answer = b""
        self.series, self.bytes = 0, 0

    async def serve(self, port: int, enough: threading.Event) -> None:
        """Answer until it is enough."""
        await self._renew()
        server = await asyncio.start_server(self._talk, "0.0.0.0", port, backlog=2048)  # noqa: S104 (127.0.0.0/8)
        async with server:
            while not enough.is_set():
                await asyncio.sleep(1)
                await self._renew()

    async def _renew(self) -> None:
        text = await asyncio.to_thread(self._exporter.text)
        self.series = sum(not line.startswith("#") for line in text.splitlines())
        self.bytes = len(text)
        body = gzip.compress(text.encode(), 1)
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Encoding: gzip\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._answer = head.encode() + body

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()
