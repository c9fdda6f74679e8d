"""The state of Slurm: typed, from the result of the module node_info."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from deepopsctl.node_programs._shared import node_states
from deepopsctl.text.amounts import amount
from deepopsctl.text.answers import Fields, OversizedError, mappings
from deepopsctl.text.node_sets import fold

_STATE = re.compile(r"[A-Z_]+")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as slurmctld reports it. `state` is scontrol's (`IDLE+DRAIN`, `DOWN*`), `gres` Slurm's own text."""

    name: str
    state: str
    reason: str = ""
    reason_user: str = ""
    reason_since: str = ""
    cpus: int = 0
    alloc_cpus: int = 0
    memory_mb: int = 0
    alloc_memory_mb: int = 0
    gres: str = ""
    gpus: int = 0
    alloc_gpus: int = 0
    partitions: tuple[str, ...] = ()
    version: str = ""

    @property
    def flags(self) -> frozenset[str]:
        """The parts of the state; a trailing `*` counts as NOT_RESPONDING."""
        return node_states.flags(self.state)

    @property
    def is_drained(self) -> bool:
        """Whether it takes no new jobs; some may still run."""
        return bool(self.flags & node_states.DRAINED)

    @property
    def is_faulty(self) -> bool:
        """Whether Slurm itself regards the node as faulty or unreachable."""
        return node_states.is_faulty(self.state)

    @property
    def is_drained_by_deepopsctl(self) -> bool:
        """Whether deepopsctl drained it."""
        return self.is_drained and self.reason.startswith(node_states.PREFIX)

    @property
    def is_drained_by_node_command(self) -> bool:
        """Whether `node add`, `remove` or `replace` drained it: these end no other drains."""
        return self.is_drained and self.reason.startswith(node_states.NODE_PREFIX)

    @property
    def is_taken_out_by_person(self) -> bool:
        """Whether an administrator drained it or set it down, and not a command of deepopsctl's for nodes."""
        is_own = self.reason.startswith(node_states.NODE_PREFIX)
        return node_states.is_out(self.state) and not is_own and node_states.is_by_person(self.reason_user)

    @property
    def word(self) -> str:
        """The state in sinfo's words: idle, mixed, allocated, draining, drained, down ..."""
        flags, base = self.flags, _STATE.findall(self.state)[:1]
        word = base[0].lower() if base else "unknown"
        if "DOWN" in flags:
            word = "down"
        elif self.is_drained:
            word = "draining" if flags & {"ALLOCATED", "MIXED", "COMPLETING"} else "drained"
        elif flags & node_states.INVALID:
            word = "invalid"
        return f"{word}*" if "NOT_RESPONDING" in flags and word != "down" else word


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job; `id` is squeue's (`41`, `41_3`, `41_[1-9]`), `nodes` is empty while it waits."""

    id: str
    user: str
    state: str
    partition: str
    nodes: tuple[str, ...] = ()

    @property
    def is_on_nodes(self) -> bool:
        """Whether it occupies nodes."""
        return self.state in node_states.ON_NODES


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A waiting job that Slurm would end, or leave waiting for ever, without the nodes that are to leave."""

    id: str
    user: str
    reason: str
    # without what would end it; Slurm can't change every job so
    can_be_held: bool = False


@dataclass(frozen=True, slots=True)
class SlurmState:
    """The state of Slurm. If the controller is down, there are no nodes and jobs, and `error` has the reason.

    `reserved` are the nodes that only a validation may use.
    """

    installed: bool = False
    controller_up: bool = False
    error: str = ""
    nodes: Mapping[str, SlurmNode] = field(default_factory=lambda: MappingProxyType({}))
    jobs: tuple[SlurmJob, ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    reserved: frozenset[str] = frozenset()
    # whether the slurmctld of each controller answers, in the order of slurm.conf
    controllers: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    # of several controllers, the one in control; '' where it is not known
    in_control: str = ""
    # those that need the nodes which the query said are leaving
    waiting_for_leaving: tuple[WaitingJob, ...] = ()

    def jobs_on(self, names: Iterable[str]) -> tuple[SlurmJob, ...]:
        """Jobs that run on any of these nodes."""
        wanted = frozenset(names)
        return tuple(job for job in self.jobs if job.is_on_nodes and not wanted.isdisjoint(job.nodes))

    @property
    def busy(self) -> frozenset[str]:
        """The nodes on which a job runs; to ask for each node alone would be a pass over all jobs each time."""
        return frozenset(name for job in self.jobs if job.is_on_nodes for name in job.nodes)

    @property
    def jobs_by_node(self) -> dict[str, tuple[SlurmJob, ...]]:
        """Running jobs by node."""
        by_node: dict[str, list[SlurmJob]] = {}
        for job in self.jobs:
            for name in job.nodes if job.is_on_nodes else ():
                by_node.setdefault(name, []).append(job)
        return {name: tuple(jobs) for name, jobs in by_node.items()}

    @property
    def pending(self) -> tuple[SlurmJob, ...]:
        """Pending jobs; pending tasks of an array count as one."""
        return tuple(job for job in self.jobs if job.state == "PENDING")


def parse_slurm_state(answer: Mapping[str, object]) -> SlurmState:
    """The state from node_info's result `slurm`; unknown fields are ignored."""
    state = Fields(answer)
    try:
        return state.fill(
            SlurmState,
            nodes={node.name: node for node in state.fill_each("nodes", SlurmNode)},
            jobs=state.fill_each("jobs", SlurmJob),
            reserved=frozenset(state.texts("reserved")),
            controllers={name: up is True for name, up in state.part("controllers").values.items()},
            waiting_for_leaving=state.fill_each("waiting", WaitingJob),
        )
    except OversizedError as error:
        # without some of them, nodes with jobs would pass for idle
        return SlurmState(installed=state.yes("installed"), error=error.message)


def state_in(answers: Iterable[Mapping[str, object]]) -> SlurmState:
    """The state among the results of a run's modules: the first with an answer of slurmctld; else empty."""
    states = [parse_slurm_state(answer) for answer in mappings([data.get("slurm") for data in answers])]
    return next((state for state in states if state.controller_up), states[0] if states else SlurmState())


def jobs_sentence(jobs: Sequence[SlurmJob], nodes: Iterable[str]) -> str:
    """`3 jobs on gpu[01-02]`: how many, and on which of these nodes; '' where there are none."""
    if not jobs:
        return ""
    busy = {name for job in jobs for name in job.nodes}
    return f"{amount(len(jobs), 'job')} on {fold(name for name in nodes if name in busy)}"
