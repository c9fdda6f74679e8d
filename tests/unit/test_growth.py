"""What is done for each node of a cluster grows as the number of nodes does, and not faster.

Calls of functions are counted, which are the same on any machine: what looks at all nodes for each node shows in four
times as many calls for twice the nodes.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.cluster.inventory import render_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.doctor.check_builders import Declared
from deepopsctl.doctor.examine import check_facts
from deepopsctl.doctor.facts import Address, NodeFacts, parse_facts
from deepopsctl.lifecycle.rolling import select
from deepopsctl.model.cluster import Cluster
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import Failure, RunOutcome, RunSummary, TaskResult
from deepopsctl.run.workspace import RunDir
from deepopsctl.slurm.state import parse_slurm_state
from deepopsctl.status.cluster import LastRuns, examine
from deepopsctl.status.table import node_rows
from tests.data.doctor_samples import REPORT
from tests.unit.status.test_status import IDLE, node_facts

SIZE = 80
# twice the nodes; a little for what grows with the digits of their numbers
MOST = 2.3
SAME_NETWORK = (Address("usb0", "169.254.3.1", "169.254.3.0/24", 1500),)


def spec(count: int) -> str:
    """A cluster.yml with an entry for each node."""
    entries = (
        f"  - {{names: n{i}, addresses: 10.{i // 250}.0.{i % 250 + 1}, roles: [compute]}}\n" for i in range(count)
    )
    return "schema: 1\ncluster: {name: hpc, user: u}\nnodes:\n  - {names: ctl1, roles: [controller]}\n" + "".join(
        entries
    )


def cluster(count: int) -> Cluster:
    return parse_spec(spec(count), "cluster.yml")


def facts(name: str, number: int, change: Mapping[str, Any]) -> NodeFacts:
    node = parse_facts(name, REPORT)
    own = Address("eth0", f"10.0.{number // 250}.{number % 250}", "10.0.0.0/8", 1500)
    good = replace(node, hostname=name, machine_id=str(number), addresses=(own,))
    return replace(good, **{"names": replace(node.names, otherwise={}), **change})


def examined(change: Callable[[int], Mapping[str, Any]], count: int) -> Callable[[], object]:
    """The doctor's checks of so many nodes."""
    declared = Declared(cluster(count), {})
    nodes = [facts(node.name, number, change(number)) for number, node in enumerate(declared.cluster.nodes)]
    return lambda: list(check_facts(nodes, declared))


def status(count: int, *, are_silent: bool) -> Callable[[], object]:
    """The status of so many nodes, each with a job."""
    known = cluster(count)
    names = [node.name for node in known.nodes]
    jobs = [
        {"id": str(i), "user": "u", "state": "RUNNING", "partition": "p", "nodes": [n]} for i, n in enumerate(names)
    ]
    slurm = {
        "installed": True,
        "controller_up": True,
        "nodes": [{"name": name, **IDLE} for name in names],
        "jobs": jobs,
    }
    silent = names[1:] if are_silent else []
    failures = tuple(Failure(name, "status", "ask", f"ssh: {name}: no route", "", unreachable=True) for name in silent)
    data = {name: {"node": node_facts()} for name in names if name not in set(silent)}
    results = (
        *(TaskResult(name, "ask", each) for name, each in data.items()),
        TaskResult("ctl1", "ask", {"slurm": slurm}),
    )
    hosts = {name: Totals(ok=1) for name in names}
    outcome = RunOutcome(RunDir(Path("x")), "status", RunSummary(hosts, failures, (), (), results), 1.0, 0)

    def show() -> object:
        result = examine(outcome, known, {}, LastRuns())
        return result.document(), node_rows(result.nodes)

    return show


def taken(count: int) -> Callable[[], object]:
    """The choice of nodes for an upgrade, and which of them have jobs."""
    names = [f"n{i}" for i in range(count)]
    jobs = [
        {"id": str(i), "user": "u", "state": "RUNNING", "partition": "p", "nodes": [n]} for i, n in enumerate(names)
    ]
    slurm = parse_slurm_state({"installed": True, "controller_up": True, "nodes": [{"name": n, **IDLE} for n in names],
                               "jobs": jobs})  # fmt: skip
    return lambda: (select(names, slurm, "upgrade os"), sorted(names, key=slurm.busy.__contains__))


WORK: Mapping[str, Callable[[int], Callable[[], object]]] = {
    "cluster.yml": lambda count: partial(cluster, count),
    "inventory": lambda count: partial(render_inventory, cluster(count)),
    "doctor": partial(examined, lambda _number: {}),
    "doctor of copies": partial(examined, lambda _number: {"machine_id": "same"}),
    "doctor of one address": partial(examined, lambda _number: {"addresses": SAME_NETWORK}),
    "doctor of two sizes": partial(examined, lambda number: {"addresses": (
        Address("eth0", f"10.0.{number // 250}.{number % 250}", "10.0.0.0/8", 1500 + number % 2),
    )}),
    "doctor of two ids": partial(examined, lambda number: {"users": {"ada": f"{number % 2}:1"}}),
    "status": partial(status, are_silent=False),
    "status of silent nodes": partial(status, are_silent=True),
    "upgrade": taken,
}  # fmt: skip


def calls(work: Callable[[], object]) -> int:
    """How many functions it calls."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]  # typeshed lacks it


@pytest.mark.parametrize("name", WORK)
def test_twice_the_nodes_are_twice_the_work(name: str) -> None:
    first, second = WORK[name](SIZE), WORK[name](2 * SIZE)
    first()

    assert calls(second) <= MOST * calls(first)
