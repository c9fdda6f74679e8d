"""What one Prometheus costs that scrapes many nodes every 15 s: memory, processor time, disk, scrape duration.

The nodes are simulated (benchmarks/crowd.py): an address of the loopback network each, with the text of a real node
exporter. Prometheus is the distribution's, with the product's rules.

    python -m benchmarks.monitoring_targets [--targets 1000] [--minutes 12] [--cpus 64] [--jobs 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.crowd import Crowd, Exporter, addresses

RULES = Path(__file__).resolve().parent.parent / "roles" / "prometheus" / "files" / "rules"
INTERVAL_S = 15
PORT, EXPORTER_PORT, TARGETS_PORT = 19090, 19101, 19100
# of a page that shows all nodes at once
QUERIES = {
    "memory of all nodes, a figure": "sum(node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)",
    "memory, a figure a node": "1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes",
    "processors, a figure a node": "1 - avg by (node) (rate(node_cpu_seconds_total{mode='idle'}[1m]))",
    "processors of all nodes, a figure": "sum(rate(node_cpu_seconds_total{mode!~'idle|iowait|steal'}[1m]))",
    "processors, one node": "1 - avg by (node) (rate(node_cpu_seconds_total{node='n0001', mode='idle'}[1m]))",
}


@dataclass(frozen=True)
class Result:
    """Of the second half of the run, when all that is allocated at first has been; bytes and seconds."""

    prometheus: str
    targets: int
    series_a_target: int
    text_bytes: int
    minutes: float
    up: int
    series: int
    samples_a_second: float
    cpu_cores: float
    rss_bytes: int
    rss_peak_bytes: int
    disk_bytes: int
    bytes_a_sample: float
    scrape_median_s: float
    scrape_99_s: float
    scrape_longest_s: float
    interval_99_s: float
    rules_s: float
    queries_s: dict[str, float]


class Prometheus:
    """The process that is measured, in a folder of its own."""

    def __init__(self, folder: Path, names: dict[str, str]) -> None:
        self.folder = folder
        targets = [
            {"targets": [f"{at}:{TARGETS_PORT}"], "labels": {"node": name, "cluster": "bench"}}
            for name, at in names.items()
        ]
        (folder / "targets.json").write_text(json.dumps(targets))
        rules = [str(path) for path in sorted(RULES.glob("*.yml"))]
        config = {
            "global": {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"},
            "rule_files": rules,
            "scrape_configs": [
                {
                    "job_name": "node",
                    "honor_labels": True,
                    "file_sd_configs": [{"files": [str(folder / "targets.json")]}],
                },
                {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{PORT}"]}]},
            ],
        }
        # JSON is YAML
        (folder / "prometheus.yml").write_text(json.dumps(config))
        argv = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{PORT}",
            "--log.level=warn",
        ]
        self._process = subprocess.Popen(argv, stderr=(folder / "log").open("wb"))

    def ask(self, query: str) -> float:
        """The one value that a query gives; 0 for none."""
        url = f"http://127.0.0.1:{PORT}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = json.load(answer)["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def seconds(self, query: str) -> float:
        """How long a query takes, the median of three; infinity where it is given up."""
        taken = []
        for _time in range(3):
            started = time.perf_counter()
            try:
                self.ask(query)
            except OSError:
                return math.inf
            taken.append(time.perf_counter() - started)
        return round(sorted(taken)[1], 4)

    def version(self) -> str:
        """As it names itself."""
        done = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
        return (done.stdout + done.stderr).split()[2]

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, key: str) -> int:
        """A line of its status, in bytes."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    def disk(self) -> int:
        """Bytes of its data so far: the log of what has not been packed into blocks yet, and the blocks."""
        return sum(path.stat().st_blocks * 512 for path in (self.folder / "data").rglob("*") if path.is_file())

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def measure(options: argparse.Namespace, folder: Path) -> Result:
    """The whole run."""
    names = {f"n{number:04}": at for number, at in enumerate(addresses(options.targets), 1)}
    exporter = Exporter(EXPORTER_PORT, options.cpus, options.jobs, options.flag)
    time.sleep(1)
    crowd = Crowd(exporter)
    length, enough = options.minutes * 60, threading.Event()
    server = threading.Thread(target=lambda: asyncio.run(crowd.serve(TARGETS_PORT, enough)))
    server.start()
    time.sleep(2)
    prometheus = Prometheus(folder, names)
    try:
        time.sleep(length / 2)
        cpu, at = prometheus.cpu(), time.monotonic()
        time.sleep(length / 2)
        return looked_at(prometheus, crowd, options, (prometheus.cpu() - cpu) / (time.monotonic() - at))
    finally:
        prometheus.stop()
        enough.set()
        server.join()
        exporter.stop()


def looked_at(prometheus: Prometheus, crowd: Crowd, options: argparse.Namespace, cores: float) -> Result:
    """What there is to see at the end."""
    window = f"{int(options.minutes * 30)}s"
    rss = prometheus.memory("VmRSS")
    ask = prometheus.ask
    samples = ask(f"rate(prometheus_tsdb_head_samples_appended_total[{window}])")
    appended = ask("prometheus_tsdb_head_samples_appended_total")
    worst = f"max_over_time(scrape_duration_seconds{{job='node'}}[{window}])"
    disk = prometheus.disk()
    return Result(
        prometheus=prometheus.version(),
        targets=options.targets,
        series_a_target=crowd.series,
        text_bytes=crowd.bytes,
        minutes=options.minutes,
        up=int(ask("sum(up{job='node'})")),
        series=int(ask("prometheus_tsdb_head_series")),
        samples_a_second=round(samples),
        cpu_cores=round(cores, 3),
        rss_bytes=rss,
        rss_peak_bytes=prometheus.memory("VmHWM"),
        disk_bytes=disk,
        bytes_a_sample=round(disk / appended, 2) if appended else 0,
        scrape_median_s=round(ask("quantile(0.5, scrape_duration_seconds{job='node'})"), 4),
        scrape_99_s=round(ask(f"quantile(0.99, {worst})"), 4),
        scrape_longest_s=round(ask(f"max({worst})"), 4),
        interval_99_s=round(ask("max(prometheus_target_interval_length_seconds{quantile='0.99'})"), 3),
        rules_s=round(ask("sum(prometheus_rule_group_last_duration_seconds)"), 4),
        queries_s={name: prometheus.seconds(query) for name, query in QUERIES.items()},
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--cpus", type=int, default=64, help="processors of a simulated node")
    parser.add_argument("--jobs", type=int, default=4, help="jobs on a simulated node")
    parser.add_argument("--flag", action="append", default=[], help="one more argument of the node exporter")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="deepopsctl-bench-"))
    try:
        found = asdict(measure(options, folder))
        for name, value in found.items():
            print(f"{name:18} {value}")
        if options.json:
            options.json.write_text(json.dumps(found, indent=2) + "\n")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
