"""How long `node add` takes in clusters of different size; the aim is the same time.

For each size a fresh lab is deployed, then nodes are added one after the other, each timed from the command line's
start to the node being validated and in service. Printed with the seconds is what does not depend on the host's load:
how many nodes were visited, and with how many tasks.

    python -m benchmarks.node_add [--sizes 2,16] [--times 2] [--os debian13] [--json FILE]
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.deploy import Costs, Nodes
from benchmarks.sizes import DEEPOPSCTL, LAB, output_of, parser, print_table


@dataclass(frozen=True)
class Result:
    """One size: seconds of each `node add`, and what the last one did."""

    compute_nodes: int
    seconds: tuple[float, ...]
    nodes_visited: int
    host_tasks: int


def lab_up(size: int, system: str) -> dict[str, str]:
    """Grow the lab to this many compute nodes; return the addresses of all."""
    lab = json.loads(
        output_of(DEEPOPSCTL, "lab", "up", "--name", LAB, "--compute", str(size), "--os", system, "--json")
    )
    return {node["name"]: node["address"] for node in lab["nodes"]}


def add(nodes: Nodes, name: str, address: str, password: str) -> dict[str, dict[str, dict[str, int]]]:
    """The command that is measured; its JSON object."""
    words = ("node", "add", f"{name}={address}", "--password-file", password, "--json")
    phases: dict[str, dict[str, dict[str, int]]] = json.loads(output_of(DEEPOPSCTL, "-C", str(nodes.directory), *words))
    return phases


def measure(size: int, times: int, system: str, directory: Path) -> Result:
    """Deploy a cluster of this size, then add nodes to it."""
    nodes = Nodes(size, system, directory, Costs())
    nodes.command("deploy", "slurm")
    # all of them first: a lab that grows checks every node it has
    addresses = lab_up(size + times, system)
    lab = json.loads(output_of(DEEPOPSCTL, "lab", "status", "--name", LAB, "--json"))["labs"][0]
    seconds, report = [], {}
    for name in list(addresses)[-times:]:
        time.sleep(2)  # what the last command left running on the nodes ends
        started = time.perf_counter()
        report = add(nodes, name, addresses[name], lab["password_file"])
        seconds.append(round(time.perf_counter() - started, 1))
    hosts = report["hosts"]
    return Result(size, tuple(seconds), len(hosts), sum(counts["ok"] for counts in hosts.values()))


def line(result: Result) -> str:
    """A size's line of the table."""
    each = ", ".join(f"{value:.1f}" for value in result.seconds)
    return (
        f"{result.compute_nodes:13}   {statistics.median(result.seconds):8.1f}   {each:<18}   "
        f"{result.nodes_visited:13}   {result.host_tasks:10}"
    )


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, "2,16")
    options.add_argument("--times", type=int, default=2)
    chosen = options.parse_args()
    head = "compute nodes   node add   each                 nodes visited   host-tasks"
    print_table(chosen, head, lambda size, directory: measure(size, chosen.times, chosen.os, directory), line)


if __name__ == "__main__":
    main()
