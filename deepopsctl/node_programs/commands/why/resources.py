"""Which nodes a job can use, what is free there, and who has the rest until when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..._shared import slurm_client, slurm_output
from ..._shared.fitting import Job as Request, Layout, can, expanded, gres, has, live
from ..._shared.hostlist import fold
from ..._shared.node_states import NO_JOBS, flags
from ..._shared.slurm_output import clean
from .answer import count, several, until
from .asking import Slurm, ends_at
from .job import Job

# who holds what is asked for as many nodes at most
_MOST_NODES = 64
_SHOW_NODES, _SHOW_PARTITIONS = slurm_client.show("node"), slurm_client.show("partition")


class Places(NamedTuple):
    """The nodes of a job's partitions: those that fit it were they idle, apart those of them that run no jobs now."""

    layout: Layout
    records: dict[str, slurm_output.Record]
    members: list[str]
    fitting: list[str]
    out: list[str]

    @property
    def usable(self) -> list[str]:
        """Those where it could run."""
        return [name for name in self.fitting if name not in self.out]


def places(job: Job, slurm: Slurm) -> Places:
    """Two questions for all nodes and partitions."""
    nodes = slurm.text(_SHOW_NODES)
    layout = live(nodes, slurm.text(_SHOW_PARTITIONS))
    shown = slurm_output.records(nodes, "NodeName")
    inside = {name for partition in job.partitions for name in layout.members.get(partition, ())}
    members = [name for name in shown if name in inside]
    request = job.request
    fitting = [
        name
        for name in members
        if name not in request.excluded
        and (len(request.required) > request.nodes or not request.required or name in request.required)
        and can(request, layout.nodes[name])
    ]
    return Places(layout, shown, members, fitting, [name for name in fitting if flags(shown[name]["State"]) & NO_JOBS])


def out_of_service(names: list[str], slurm_nodes: dict[str, slurm_output.Record]) -> Iterator[str]:
    """Each node that runs no jobs, with its state and the reason that a person or Slurm has written."""
    for name in names[:8]:
        node = slurm_nodes[name]
        reason = clean(slurm_output.reason(node)).partition(" [")[0]
        yield f"{name} is {clean(node['State'].lower())}" + (f": {reason}" if reason else "")
    if len(names) > 8:
        yield f"and {len(names) - 8} more"


def lacking(request: Request, where: Places) -> list[str]:
    """What the fitting nodes lack at the moment; [] where enough of them have enough."""
    free = [_free(where.records[name]) for name in where.usable]
    enough = [node for node in free if _has(request, node)]
    if len(enough) >= request.nodes:
        return []
    words = []
    if sum(node.cpus >= request.node_cpus for node in free) < request.nodes:
        words.append(count(request.node_cpus, "CPU"))
    if sum(node.memory >= request.memory for node in free) < request.nodes:
        words.append(f"{request.memory} MB of memory")
    for key, number in request.gres:
        if sum(has(node.gres, key) >= number for node in free) < request.nodes:
            words.append(f"{number} x {':'.join(filter(None, key))}")
    if request.gres == () and request.all_gres:
        words += [
            f"{number} x {':'.join(filter(None, key))} in all"
            for key, number in request.all_gres
            if sum(has(node.gres, key) for node in free) < number
        ]
    return words or ["all of it together"]


class _Free(NamedTuple):
    cpus: int
    memory: int
    gres: dict[tuple[str, str], int]


def _free(node: slurm_output.Record) -> _Free:
    total, used = gres(node.get("Gres", "")), slurm_output.tres(node.get("AllocTRES", ""))
    left = {}
    for (name, kind), number in total.items():
        word = f"gres/{name}:{kind}" if kind else f"gres/{name}"
        left[name, kind] = number - (slurm_output.whole(used.get(word, "")) or 0)
    amount = slurm_output.number
    cpus = amount(node, "CPUTot") - amount(node, "CPUAlloc")
    return _Free(cpus, amount(node, "RealMemory") - amount(node, "AllocMem"), left)


def _has(request: Request, node: _Free) -> bool:
    return (
        node.cpus >= request.node_cpus
        and node.memory >= request.memory
        and all(has(node.gres, key) >= number for key, number in request.gres)
    )


def holders(names: list[str], slurm: Slurm, now: float, most: int = 5) -> list[str]:
    """Jobs on these nodes, soonest end first, as far as Slurm shows them."""
    if not names or len(names) > _MOST_NODES:
        return []
    rows = [row for row in slurm.running("--nodelist=" + fold(names)) if set(expanded(row["NodeList"])) & set(names)]
    lines = [holder(row, now) for row in rows[:most]]
    return lines + ([f"and {count(len(rows) - most, 'more job')}"] if len(rows) > most else [])


def holder(row: dict[str, str], now: float) -> str:
    """`job 12 of alice on gpu01 has 2 CPUs, 2 x gpu:a100, until 14:05`."""
    tres = slurm_output.tres(row["AllocTRES"])
    gpus = slurm_output.gpus_of_tres(tres)
    held = [count(slurm_output.number(tres, "cpu"), "CPU"), *([f"{tres['mem']} of memory"] if "mem" in tres else [])]
    held += [f"{number} x {kind or 'GPU'}" for kind, number in sorted(gpus.items())]
    what = f"job {row['JobID']} of {clean(row['User'])} on {clean(row['NodeList'])} has {', '.join(held)}"
    return f"{what}, {until(ends_at(row), now)}"


def summary(where: Places, partitions: list[str]) -> str:
    """`of 4 nodes of partition gpu 3 fit the job, and 1 of these is out of service`."""
    text = f"{count(len(where.members), 'node')} of partition {several(partitions)}: {len(where.fitting)} fit the job"
    return text + (f", {len(where.out)} of these out of service" if where.out else "")
