"""How long a job takes until each of its nodes has a dataset: a naive `cp` on each node, against `stage-in`.

One fresh lab, whose controller serves files as in tests/lab/test_job_data.py. The ways take turns, so that the host's
load is the same. Bytes are those that the file server sends. The network of a lab is memory: --mbit limits what the
server sends, so that it is the bottleneck, as a file server of many nodes is.

    python -m benchmarks.datasets [--compute 4] [--rounds 3] [--megabytes 40,200] [--mbit 200]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster
from tests.lab.test_job_data import job, serve

WAYS = {
    "cp": "srun cp /data/{0} $SLURM_TMPDIR/",
    "stage-in": "stage-in /data/{0}",
    "--each": "stage-in --each /data/{0}",
}
# of the link of the file server: a packet of the host's network has up to 64 KiB
LIMIT = "tc qdisc replace dev eth0 root tbf rate {}mbit burst 256kb latency 50ms"
TIMED = "began=$(date +%s%3N); {0}; echo $(($(date +%s%3N) - began))"


def measure(cluster: LabCluster, nodes: list[str], way: str, name: str) -> tuple[float, int]:
    """Seconds of one way in a job on all nodes, and the bytes that the file server has sent."""
    for node in nodes:
        cluster.root(node, "rm -f /tmp/out-*")
    output, sent = job(cluster, TIMED.format(WAYS[way].format(name)), nodes)
    return int(output.split()[-1]) / 1000, sent


def compare(cluster: LabCluster, nodes: list[str], megabytes: list[int], rounds: int) -> Iterator[str]:
    """A line for each size and way."""
    for size in megabytes:
        cluster.root("ctl1", f"head -c {size}M /dev/urandom > /srv/data/of-{size}; chmod a+r /srv/data/of-{size}")
        results: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way, taken in results.items():
                taken.append(measure(cluster, nodes, way, f"of-{size}"))
        for way, taken in results.items():
            seconds = [each for each, _sent in taken]
            yield f"{size:5} MiB  {way:10} {median(seconds):7.1f} s  {seconds}  {taken[-1][1] >> 20} MiB sent"


def main(arguments: list[str]) -> int:
    """Make the lab and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--compute", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", default="40,200")
    parser.add_argument("--mbit", type=int, default=0, help="limit of what the file server sends; 0 for none")
    options = parser.parse_args(arguments)
    nodes = [f"cn{number:02}" for number in range(1, options.compute + 1)]
    directories = pytest.TempPathFactory(Path(tempfile.mkdtemp()), 3, "all", lambda *_: None, _ispytest=True)
    with fresh_cluster(f"{PREFIX}-datasets", directories, "--compute", str(options.compute)) as cluster:
        spec = cluster.directory / "cluster.yml"
        edit(spec, "components: [slurm]", "components: [slurm, environment]")
        spec.write_text(f"{spec.read_text('utf-8')}job_directories: {{base: /srv/jobs, method: prolog}}\n", "utf-8")
        edit(cluster.directory / SETTINGS, "---\n", "---\nmodules_system: none\n")
        cluster.deepopsctl("deploy")
        serve(cluster, nodes)
        if options.mbit:
            cluster.root("ctl1", LIMIT.format(options.mbit))
        for line in compare(cluster, nodes, [int(size) for size in options.megabytes.split(",")], options.rounds):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
