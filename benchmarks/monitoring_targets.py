"""What one Prometheus costs that scrapes many nodes every 15 s: memory, processor time, disk, scrapes, rules, panels.

The nodes are simulated (benchmarks/crowd.py): an address of the loopback network each, with a node exporter and a GPU
exporter. Prometheus is the distribution's, with the product's configuration and rules.

    python -m benchmarks.monitoring_targets [--targets 1000] [--minutes 9] [--cpus 64] [--jobs 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import panel_times
from benchmarks.crowd import Crowd, addresses
from benchmarks.crowdtext import Nodes, name_of
from benchmarks.measured_prometheus import Prometheus
from deepopsctl.monitoring.problems import CPU_DETAILS

EXPORTER_PORT = 19101
# until all targets have been scraped and rates are known: not part of what is measured
SETTLES_MINUTES = 2.0
SHOWN = 12


@dataclass(frozen=True)
class Result:
    """Bytes and seconds; processor time and scrapes of all but the first two minutes."""

    prometheus: str
    targets: int
    cpus_a_node: int
    # series and bytes of each exporter's text
    texts: dict[str, tuple[int, int]]
    minutes: float
    load: float
    up: int
    series: int
    samples_a_second: float
    cpu_cores: float
    cpu_us_a_sample: float
    # of the simulated nodes, which are on the same host
    crowd_cores: float
    rss_bytes: int
    # until then, with the pass that writes a block in it; and after all panels have been asked
    rss_peak_bytes: int
    rss_peak_after_panels_bytes: int
    bytes_a_series: int
    # of the blocks on disk; 0 where none has been written yet
    chunk_bytes_a_sample: float
    index_bytes_a_series: float
    scrape_median_s: float
    scrape_99_s: float
    scrape_longest_s: float
    # the part of scrapes that came
    scraped: float
    interval_99_s: float
    # how long the slowest group of rules took, which has 15 s
    slowest_rules_s: float
    # processor time, measured when nothing is scraped any more: of one round of rules, of one refresh of a dashboard
    rules_cpu_s: dict[str, float]
    dashboards_cpu_s: dict[str, float]
    rules: list[panel_times.Cost]
    panels: list[panel_times.Cost]


def measure(options: argparse.Namespace, directory: Path) -> Result:
    """The whole run."""
    names = {name_of(number): at for number, at in enumerate(addresses(options.targets), 1)}
    nodes = Nodes(EXPORTER_PORT, options.targets, options.cpus, options.jobs, options.detail)
    time.sleep(1)
    crowd = Crowd(nodes)
    crowd.start()
    prometheus = Prometheus(options.prometheus, directory, names, with_gpus=not options.no_gpus)
    try:
        prometheus.wait()
        time.sleep(SETTLES_MINUTES * 60)
        cpu, own, at = prometheus.cpu(), time.process_time(), time.monotonic()
        time.sleep((options.minutes - SETTLES_MINUTES) * 60)
        elapsed_s = time.monotonic() - at
        cores, own_cores = (prometheus.cpu() - cpu) / elapsed_s, (time.process_time() - own) / elapsed_s
        return measured_queries(prometheus, crowd, options, cores, own_cores)
    finally:
        prometheus.stop()
        crowd.stop()
        nodes.stop()


def measured_queries(
    prometheus: Prometheus, crowd: Crowd, options: argparse.Namespace, cores: float, own: float
) -> Result:
    """Measurements at the end; panels last, because they use memory."""
    measured = f"{int((options.minutes - SETTLES_MINUTES) * 60)}s"
    rss, peak, load = prometheus.memory("VmRSS"), prometheus.memory("VmHWM"), os.getloadavg()[1]
    value = prometheus.value
    samples = value(f"sum(rate(prometheus_tsdb_head_samples_appended_total[{measured}]))")
    worst = f"max_over_time(scrape_duration_seconds{{job=~'node|gpu'}}[{measured}])"
    series, blocks = int(value("prometheus_tsdb_head_series")), prometheus.blocks()
    packed = {key: sum(block[key] for block in blocks) for key in ("samples", "series", "chunks", "index")}
    costs: dict[str, Any] = {
        "up": int(value("sum(up{job=~'node|gpu'})")),
        "scrape_median_s": round(
            value(f"quantile(0.5, avg_over_time(scrape_duration_seconds{{job='node'}}[{measured}]))"), 4
        ),
        "scrape_99_s": round(value(f"quantile(0.99, {worst})"), 4),
        "scrape_longest_s": round(value(f"max({worst})"), 4),
        "scraped": round(value(f"avg(avg_over_time(up{{job=~'node|gpu'}}[{measured}]))"), 5),
        "interval_99_s": round(value("max(prometheus_target_interval_length_seconds{quantile='0.99'})"), 3),
        "slowest_rules_s": round(value("max(prometheus_rule_group_last_duration_seconds)"), 3),
    }
    version, until = prometheus.version(), prometheus.rest()
    rules = panel_times.of_rules(prometheus, until)
    panels = panel_times.of_panels(prometheus, until, options.minutes)
    return Result(
        prometheus=version,
        targets=options.targets,
        cpus_a_node=options.cpus,
        texts=crowd.sizes,
        minutes=options.minutes,
        load=round(load, 1),
        series=series,
        samples_a_second=round(samples),
        cpu_cores=round(cores, 3),
        cpu_us_a_sample=round(cores / samples * 1e6, 2) if samples else 0,
        crowd_cores=round(own, 3),
        rss_bytes=rss,
        rss_peak_bytes=peak,
        rss_peak_after_panels_bytes=prometheus.memory("VmHWM"),
        bytes_a_series=peak // max(series, 1),
        chunk_bytes_a_sample=round(packed["chunks"] / packed["samples"], 2) if blocks else 0,
        index_bytes_a_series=round(packed["index"] / packed["series"], 1) if blocks else 0,
        rules_cpu_s=panel_times.seconds_by_place(rules),
        dashboards_cpu_s=panel_times.seconds_by_place(panels),
        rules=rules,
        panels=panels,
        **costs,
    )


def show(result: Result) -> None:
    """All of it; of rules and panels the dearest alone."""
    for name, value in asdict(result).items():
        if name not in ("rules", "panels"):
            print(f"{name:28} {value}")
    for title, costs in (("rules", result.rules), ("queries of panels", result.panels)):
        print(f"\n{len(costs)} {title}: seconds of processor time, seconds, series, points")
        for cost in costs[:SHOWN]:
            figures = f"{cost.cpu_s:8.2f} {cost.seconds:8.2f} {cost.series:7} {cost.points:9}"
            print(f"{figures} {cost.where}: {cost.what} {cost.refused}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", type=int, default=1000, help="simulated nodes, each with its two exporters")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--cpus", type=int, default=64, help="processors of a simulated node")
    parser.add_argument("--jobs", type=int, default=4, help="jobs on a simulated node")
    parser.add_argument("--no-gpus", action="store_true", help="nodes without a GPU exporter")
    parser.add_argument(
        "--detail", action="append", default=[], choices=sorted(CPU_DETAILS), help="also of each processor"
    )
    parser.add_argument("--prometheus", default="prometheus", metavar="PROGRAM", help="another one than the host's")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deepopsctl-bench-"))
    try:
        result = measure(options, directory)
        show(result)
        if options.json:
            options.json.write_text(json.dumps(asdict(result), indent=2) + "\n")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
