"""What the first `deploy environment` takes: seconds, host-tasks, and each node's CPU and transactions of apt.

Each way has a fresh lab with Slurm: once the roles install their own packages, one after the other, as a playbook does
that uses them alone, and once all of them come with the first role's, as the product's playbook has it.

    python -m benchmarks.environment [--compute 4] [--os debian13] [--easybuild]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster
from tests.support.budget import cost

SITE = """
job_directories: {base: /srv/jobs, method: prolog}
storage: [{name: software, type: local, source: /srv/shared/software, path: /opt/software, local: {shared: true}}]
"""
DECLARED = "modules_software: [python, gcc, openmpi]\nenvironment_containers: [podman, charliecloud]\n"
# both by a variable, as Ansible then compares the options of roles in tasks of its own
WAYS: dict[str, dict[str, Any]] = {
    "a transaction by each role": {"user_environment_ahead": []},
    "one transaction": {"of_no_role": []},
}


def transactions(cluster: LabCluster, node: str) -> list[float]:
    """Seconds of each transaction of apt so far."""
    log = cluster.root(node, "cat /var/log/apt/history.log")
    began, ended = (
        [datetime.strptime(when, "%Y-%m-%d  %H:%M:%S") for when in re.findall(f"^{word}: (.*)$", log, re.MULTILINE)]
        for word in ("Start-Date", "End-Date")
    )
    return [(end - begin).total_seconds() for begin, end in zip(began, ended, strict=True)]


def processor_seconds(cluster: LabCluster, node: str) -> float:
    """What the processes of a node have used."""
    argv = ["podman", "stats", "--no-stream", "--format", "{{.CPUNano}}", f"{cluster.name}-{node}"]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout) / 1e9


def measure(cluster: LabCluster, nodes: list[str], variables: dict[str, Any]) -> dict[str, Any]:
    """The first deploy of the component on nodes that have Slurm."""
    before = {node: len(transactions(cluster, node)) for node in nodes}
    used = {node: processor_seconds(cluster, node) for node in nodes}
    began = time.monotonic()
    summary = cluster.parsed("deploy", "environment", "-e", json.dumps(variables))
    taken = time.monotonic() - began
    used = {node: round(processor_seconds(cluster, node) - already, 1) for node, already in used.items()}
    made = {node: transactions(cluster, node)[before[node] :] for node in nodes}
    return {
        "seconds": round(taken, 1),
        "host-tasks": cost(summary),
        "transactions": {node: len(each) for node, each in made.items()},
        "CPU seconds": used,
        "seconds of apt": {node: sum(each) for node, each in made.items()},
        "slowest": summary["slowest"],
    }


def main(arguments: list[str]) -> int:
    """Make a lab for each way, and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--compute", type=int, default=4)
    parser.add_argument("--os", default="debian13")
    parser.add_argument("--easybuild", action="store_true")
    options = parser.parse_args(arguments)
    nodes = ["ctl1", *(f"cn{number:02}" for number in range(1, options.compute + 1))]
    directories = pytest.TempPathFactory(Path(tempfile.mkdtemp()), 3, "all", lambda *_: None, _ispytest=True)
    for way, variables in WAYS.items():
        name = f"{PREFIX}-environment"
        with fresh_cluster(name, directories, "--compute", str(options.compute), os=options.os) as cluster:
            cluster.root("ctl1", "mkdir -p /srv/shared/software")
            spec = cluster.directory / "cluster.yml"
            edit(spec, "components: [slurm]", "components: [storage, slurm, environment]")
            spec.write_text(spec.read_text("utf-8") + SITE, "utf-8")
            more = "site_software_easybuild: true\n" if options.easybuild else ""
            edit(cluster.directory / SETTINGS, "---\n", f"---\n{DECLARED}{more}")
            cluster.deepopsctl("deploy", "storage", "slurm")
            print(way, json.dumps(measure(cluster, nodes, variables), indent=1), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
