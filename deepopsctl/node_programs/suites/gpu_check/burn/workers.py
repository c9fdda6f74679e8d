"""The processes that make the load: start them, read their lines as they come, end them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import Any

# a worker that prints nothing for so long hangs; cores are shared with other processes of the node
SILENCE_S = {"gpu": 120.0, "core": 300.0}
_DYING_S = 10.0
_MOST_POINTS = 60


class Worker:
    """One process of a module of this package. `rates` are points in time by test, `end` its last word."""

    def __init__(self, module: str, order: dict[str, Any], environment: dict[str, str] | None = None) -> None:
        self.module, self.order = module, order
        self.rates: dict[str, list[tuple[float, float]]] = {}
        self.totals = {"rounds": 0, "cpu_s": 0.0, "verified": 0, "bytes": 0}
        self.end: dict[str, str] = {}
        self._rest = b""
        self._stopped = False
        self._stderr: Any = TemporaryFile("w+")  # noqa: SIM115 (closed by close())
        self._started = self._heard = time.monotonic()
        program = f"from deepopsctl.node_programs.suites.gpu_check.burn.{module} import main; main()"
        self._pipe, its_end = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=its_end,
            stderr=self._stderr,
            env=worker_environment(environment or {}),
            cwd="/",
        )
        os.close(its_end)
        os.set_blocking(self._pipe, False)

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        return self.process.poll() is None

    def read(self) -> None:
        """Take the lines that have come."""
        while True:
            try:
                raw = os.read(self._pipe, 65_536)
            except BlockingIOError:
                return
            if not raw:
                return
            *lines, self._rest = (self._rest + raw).split(b"\n")
            for line in lines:
                self._handle_line(json.loads(line))

    def _handle_line(self, line: dict[str, Any]) -> None:
        self._heard = time.monotonic()
        at = self._heard - self._started
        for key in ("wrong", "error", "skip"):
            if key in line:
                self.end = {"status": key, "message": line[key], "where": line.get("where", "gpu")}
        for key in ("rounds", "cpu_s", "verified"):
            self.totals[key] += line.get(key, 0)
        self.totals["bytes"] = max(self.totals["bytes"], line.get("bytes", 0))
        if line.get("cpu_s"):
            # by CPU time: what else runs on the core does not count, a core that clocks down does
            self.rates.setdefault("rounds", []).append((at, line["rounds"] / line["cpu_s"]))
        if "rate" in line:
            self.rates.setdefault(line["test"], []).append((at, line["rate"]))

    def watch(self) -> None:
        """Read; end it where it has hung."""
        self.read()
        if self.alive and time.monotonic() - self._heard > SILENCE_S[self.module]:
            self.give_up(f"no sign of life for {SILENCE_S[self.module]:.0f} s")

    def give_up(self, why: str) -> None:
        """End it because it has hung."""
        self.kill()
        stuck = "; it can't be ended: reboot the node" if self.alive else ""
        self._ill(f"the loading process hung: {why}{stuck}")

    def close(self) -> None:
        """After its end: its last lines, and what became of it where it gave no reason."""
        self.read()
        code = self.process.poll()
        if not self.end and not self._stopped and code != 0:
            self._stderr.seek(0)
            last = (self._stderr.read().strip().splitlines() or ["no message"])[-1]
            self._ill(f"the loading process died ({code}): {last}")
        self._stderr.close()
        os.close(self._pipe)

    def _ill(self, message: str) -> None:
        self.end = {"status": "error", "message": message, "where": "gpu" if self.module == "gpu" else "cpu"}

    def kill(self) -> None:
        """End it now; one that is stuck in a driver is left to itself."""
        self._stopped = True
        self.process.kill()
        try:
            self.process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return


def worker_environment(extra: dict[str, str]) -> dict[str, str]:
    """What lets a worker import this package, also from one packed file, and leaves nothing behind."""
    root = Path(os.path.abspath(__file__)).parents[5]
    return {
        **os.environ,
        "CUDA_CACHE_DISABLE": "1",
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
        **extra,
    }


def trend(points: list[tuple[float, float]], seconds: float) -> dict[str, Any]:
    """How a rate went: lowest, median, median of the first and of the last tenth of the time; {} without points."""
    if not points:
        return {}
    values = [value for _, value in points]
    tenth = seconds / 10
    first = [value for at, value in points if at <= tenth] or values[:1]
    last = [value for at, value in points if at >= seconds - tenth] or values[-1:]
    summary = {"min": min(values), "median": median(values), "first": median(first), "last": median(last)}
    return {name: float(f"{value:.5g}") for name, value in summary.items()}


def thinned(points: list[tuple[float, float]], most: int = _MOST_POINTS) -> list[list[float]]:
    """A selection of the points that stays small however long the load was: medians of equal parts."""
    parts = min(most, len(points))
    samples = []
    for number in range(parts):
        some = points[number * len(points) // parts : (number + 1) * len(points) // parts]
        samples.append([round(some[0][0], 1), float(f"{median(value for _, value in some):.5g}")])
    return samples
