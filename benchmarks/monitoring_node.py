"""What monitoring costs a compute node: processor time and memory of everything that runs there for it.

A lab is deployed with monitoring; two jobs run on a node, and a line a second is logged there, while Prometheus scrapes
it every 15 s as everywhere. Its GPUs' library is a stand-in (tests/fakes/nvml_metrics.c: four GPUs). Read is what
the kernel reports of each unit's processes, at the start and at the end.

    python -m benchmarks.monitoring_node [--minutes 5] [--os debian13] [--json FILE] [--lab NAME --node NODE]

With --lab an existing lab is measured, and left as it is.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.sizes import DEEPOPSCTL, LAB, output_of

# what the issue allows: a part of one core, and bytes
MOST_CORES, MOST_BYTES = 0.01, 100_000_000
PATTERNS = (
    "prometheus-*.service",
    "deepops-*.service",
    "systemd-journal-upload.service",
    "nvidia-dcgm-exporter.service",
)
STANDIN = Path(__file__).resolve().parent.parent / "tests" / "fakes" / "nvml_metrics.c"
LIBRARY = "/usr/local/lib/libnvidia-ml.so.1"
# all programs are running and have their data
SETTLES_S = 60
# runs on the node: seconds of processor time and bytes of each unit, with all processes that it has
MEASURE = """
import glob, json, os, subprocess, sys
tick, found = os.sysconf("SC_CLK_TCK"), {}
words = ["systemctl", "list-units", "--type=service", "--state=running", "--plain", "--no-legend", *sys.argv[1:]]
for line in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines():
    unit = line.split()[0]
    show = ["systemctl", "show", "-p", "MainPID", "--value", unit]
    pids = [subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()]
    for pid in pids:
        pids += "".join(open(path).read() for path in glob.glob(f"/proc/{pid}/task/*/children")).split()
    seconds, rss, pss = 0.0, 0, 0
    for pid in pids:
        # its own, and what children that have ended have used
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        seconds += sum(int(field) for field in fields[11:15]) / tick
        for line in open(f"/proc/{pid}/smaps_rollup"):
            rss += int(line.split()[1]) * 1024 if line.startswith("Rss:") else 0
            pss += int(line.split()[1]) * 1024 if line.startswith("Pss:") else 0
    found[unit] = {"seconds": seconds, "rss": rss, "pss": pss}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Unit:
    """One unit: the part of a core that it used, and its memory (bytes); `pss` counts what is shared once."""

    name: str
    cores: float
    rss_bytes: int
    pss_bytes: int


def measure_processes(container: str) -> dict[str, dict[str, float]]:
    """What the node's units have used so far."""
    usage: dict[str, dict[str, float]] = json.loads(
        output_of("podman", "exec", container, "python3", "-c", MEASURE, *PATTERNS)
    )
    return usage


def measure(container: str, minutes: float) -> list[Unit]:
    """Measure twice, and return the difference."""
    before, started = measure_processes(container), time.monotonic()
    time.sleep(minutes * 60)
    after, elapsed_s = measure_processes(container), time.monotonic() - started
    return [
        Unit(
            name, round((used["seconds"] - before[name]["seconds"]) / elapsed_s, 5), int(used["rss"]), int(used["pss"])
        )
        for name, used in after.items()
        if name in before
    ]


def deployed(system: str, parent: Path) -> str:
    """A fresh lab with monitoring, its GPUs among what is watched, and two jobs on its compute node; its container."""
    words = ("--name", LAB, "--compute", "1", "--gpus", "h100:4", "--monitoring", "--os", system, "--json")
    lab = json.loads(output_of(DEEPOPSCTL, "lab", "up", *words))
    directory = parent / "cluster"
    output_of(DEEPOPSCTL, "init", str(directory), "--from", lab["node_list"])
    settings = directory / "inventory" / "group_vars" / "all" / "settings.yml"
    # a lab's GPUs are simulated, and not watched unless it is asked for
    text = settings.read_text(encoding="utf-8")
    settings.write_text(
        text.replace("monitoring_gpu_exporter: none", "monitoring_gpu_exporter: auto"), encoding="utf-8"
    )
    output_of(DEEPOPSCTL, "-C", str(directory), "ssh", "setup", "--password-file", lab["password_file"])
    output_of(DEEPOPSCTL, "-C", str(directory), "deploy")
    names = {role: node["name"] for node in lab["nodes"] for role in node["roles"]}
    job = "sbatch --wrap 'while :; do :; done' && sbatch --mem=200M --wrap 'sleep 3600'"
    output_of("podman", "exec", f"{LAB}-{names['controller']}", "su", "-", "ubuntu", "-c", job)
    container = f"{LAB}-{names['compute']}"
    occupy(container, parent)
    return container


def occupy(container: str, directory: Path) -> None:
    """Give the programs on a node something to report: GPUs, and a line a second in the journal."""
    made = directory / "standin.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-s", "-o", str(made), str(STANDIN)], check=True)
    library = base64.b64encode(made.read_bytes()).decode()
    lines = "systemd-run --quiet sh -c 'while :; do logger -t bench one line a second; sleep 1; done'"
    again = "ldconfig && systemctl restart deepops-gpumetrics.service"
    output_of("podman", "exec", container, "sh", "-c", f"echo {library} | base64 -d >{LIBRARY} && {again} && {lines}")
    time.sleep(SETTLES_S)


def show(units: list[Unit]) -> Unit:
    """The table; the sum of all."""
    total = Unit(
        "all", round(sum(u.cores for u in units), 5), sum(u.rss_bytes for u in units), sum(u.pss_bytes for u in units)
    )
    print(f"{'unit':44} {'of a core':>10} {'RSS, MB':>9} {'PSS, MB':>9}")
    for unit in [*units, total]:
        print(f"{unit.name:44} {unit.cores:10.3%} {unit.rss_bytes / 1e6:9.1f} {unit.pss_bytes / 1e6:9.1f}")
    within = total.cores < MOST_CORES and total.pss_bytes < MOST_BYTES
    print(f"{'within' if within else 'ABOVE'} the bounds: {MOST_CORES:.0%} of a core, {MOST_BYTES / 1e6:.0f} MB")
    return total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--os", default="debian13")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--lab", help="a lab that is there already")
    parser.add_argument("--node", default="gpu01")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="deepopsctl-bench-"))
    try:
        container = f"{options.lab}-{options.node}" if options.lab else deployed(options.os, directory)
        units = measure(container, options.minutes)
        total = show(units)
        if options.json:
            options.json.write_text(json.dumps([asdict(unit) for unit in [*units, total]], indent=2) + "\n")
    finally:
        if not options.lab:
            output_of(DEEPOPSCTL, "lab", "down", "--name", LAB)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
