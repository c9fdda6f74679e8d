#!/usr/bin/python3
"""`replay`: an exporter that serves made-up text of a GPU exporter, with values that move. No GPU is behind it.

It stands where a GPU exporter would, so that rules, alerts and panels of GPUs meet real names and labels in a real
Prometheus. texts/README.md says where each text comes from. On Python's library alone, so that it runs on a lab's node:

    replay.py dcgm --port 9400 [--address 127.0.0.1] [--set DCGM_FI_DEV_XID_ERRORS:1:79]
"""

from __future__ import annotations

import argparse
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXTS = Path(__file__).with_name("texts")
KINDS = ("dcgm", "nvitop")
# seconds for once up and down
PERIOD_S = 300.0
# between these two, each GPU with a phase of its own
_MOVES = {
    "DCGM_FI_DEV_GPU_UTIL": (5, 98),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (1, 60),
    "DCGM_FI_DEV_FB_USED": (2048, 36864),
    "DCGM_FI_DEV_POWER_USAGE": (72.5, 690.25),
    "DCGM_FI_DEV_GPU_TEMP": (29, 71),
    "DCGM_FI_DEV_MEMORY_TEMP": (40, 88),
    "DCGM_FI_DEV_SM_CLOCK": (1200, 1980),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0.05, 0.98),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0.01, 0.7),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0.02, 0.6),
    "gpu_utilization_Percentage": (5, 98),
    "gpu_memory_utilization_Percentage": (1, 60),
    "gpu_memory_used_MiB": (2048, 36864),
    "gpu_power_usage_W": (72.5, 690.25),
    "gpu_temperature_C": (29, 71),
    "gpu_clock_sm_MHz": (1200, 1980),
}
_GROWS_EACH_SECOND = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 350_000, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 12_000}
_SAMPLE = re.compile(r"(?P<name>\w+)(?P<labels>\{.*\})? (?P<value>\S+)$")
_GPU = re.compile(r'[{,](?:gpu|index)="(?P<gpu>[^"]*)"')


class MadeUpGpus:
    """The text of one node's exporter, and what was set to be otherwise: (metric, GPU) -> value."""

    def __init__(self, exporter: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = (TEXTS / f"{exporter}.prom").read_text(encoding="utf-8").splitlines()
        self._clock, self._began = clock, clock()
        self._set: dict[tuple[str, str], float | None] = {}

    def set(self, name: str, gpu: str, value: float | None) -> None:
        """Serve this value of a metric from now on; None: the sample is gone."""
        self._set[name, gpu] = value

    def lose(self, gpu: str) -> None:
        """Serve nothing of a GPU from now on."""
        for line in self._lines:
            if (sample := _SAMPLE.match(line)) and _gpu_of(sample) == gpu:
                self.set(sample["name"], gpu, None)

    def text(self) -> str:
        """What is served now."""
        now = self._clock() - self._began
        return "".join(f"{line}\n" for each in self._lines if (line := self._now(each, now)) is not None)

    def _now(self, line: str, now: float) -> str | None:
        sample = _SAMPLE.match(line)
        if sample is None:
            return line
        name, gpu = sample["name"], _gpu_of(sample)
        value: float | None = float(sample["value"])
        if (name, gpu) in self._set:
            value = self._set[name, gpu]
        elif name in _MOVES and sample["value"] != "NaN":
            low, high = _MOVES[name]
            value = low + (high - low) * _wave(now, gpu)
        elif name in _GROWS_EACH_SECOND:
            value = float(sample["value"]) + round(_GROWS_EACH_SECOND[name] * now)
        return None if value is None else f"{name}{sample['labels'] or ''} {value:.15g}"


def _gpu_of(sample: re.Match[str]) -> str:
    match = _GPU.search(sample["labels"] or "")
    return match["gpu"] if match else ""


def _wave(now: float, gpu: str) -> float:
    phase = sum(gpu.encode()) * 0.15
    return 0.5 - 0.5 * math.cos(2 * math.pi * (now / PERIOD_S + phase))


@contextmanager
def serving(gpus: MadeUpGpus, address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Serve it from a thread; the port, for `port=0` a free one."""
    server = _server(gpus, address, port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server(gpus: MadeUpGpus, address: str, port: int) -> ThreadingHTTPServer:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = gpus.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape every few seconds is no news."""

    return ThreadingHTTPServer((address, port), Metrics)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="replay", description="Serve made-up text of a GPU exporter.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="METRIC:GPU:VALUE")
    options = parser.parse_args()
    gpus = MadeUpGpus(options.kind)
    for each in options.set:
        name, gpu, value = each.split(":")
        gpus.set(name, gpu, float(value))
    _server(gpus, options.address, options.port).serve_forever()


if __name__ == "__main__":
    main()
