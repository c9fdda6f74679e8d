"""The GPU suite as a whole: which nodes can be tried, their jobs, what came of them. Runs as the cluster's user."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ..._shared import slurm_output
from ..._shared.checks import Check
from ..._slurm_jobs import confinement, placement, snapshot
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.session import Running, Session
from ..._slurm_jobs.snapshot import SlurmSnapshot
from . import isolation, measurement, multi_node
from .inputs import SUITE, Inputs, failed, skipped

# nodes at a time: each has one srun while it is measured, and the queue is asked about it every few seconds
WORKERS = 48
NOTHING, MULTI_NODE = "gpu-nodes", "gpu-all-reduce-nodes"
_TRIAL_S = 30
_SUBMITTING_S = 1.0


class SuiteResult(NamedTuple):
    """Checks, and gpucheck's result of every node that gave one."""

    checks: list[Check]
    results: list[dict[str, Any]]


class StoppedError(Exception):
    """The connection is closed: no job is started."""


class Jobs:
    """The sessions of one validation: trials are short, measurements get the time that their GPUs need."""

    def __init__(self, token: str, inputs: Inputs) -> None:
        self._token, self._inputs = token, inputs
        self._gone = threading.Event()
        self.trials = self._session(_TRIAL_S, 2)

    def _session(self, run_timeout: float, minutes: int) -> Session:
        mine = self._inputs
        return _Session(
            self._gone, SUITE, self._token, mine.user, mine.queue_timeout, run_timeout, minutes, mine.reservation
        )

    def long(self, gpus: int, partition: slurm_output.Record) -> Session:
        """For one measurement."""
        return self._session(self._inputs.seconds(gpus), self._inputs.minutes(gpus, partition))

    def close(self) -> None:
        """Cancel what is left: any session knows all jobs of the validation by their names."""
        self.trials.close()

    def abandon(self) -> None:
        """Start no more, cancel all; and once more what was just being submitted."""
        self._gone.set()
        self.close()
        time.sleep(_SUBMITTING_S)
        self.close()


class _Session(Session):
    def __init__(self, gone: threading.Event, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._gone = gone

    def start(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Running:
        if self._gone.is_set():
            raise StoppedError
        return super().start(what, options, argv)


def verify_gpus(inputs: Inputs, jobs: Jobs) -> SuiteResult:
    """All nodes at the same time; whatever happens, no job is left."""
    if not inputs.tested:
        text = "none of these nodes has GPUs in cluster.yml: nothing to test"
        return SuiteResult([skipped(NOTHING, inputs.cluster, text)], [])
    cluster = snapshot.read_snapshot()
    if not cluster.answered:
        checks = [failed(measurement.NAME, name, cluster.silence, "no job", "a result") for name in inputs.tested]
        return SuiteResult(checks, [])
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            results_by_node = list(pool.map(lambda name: _node(name, inputs, cluster, jobs), inputs.tested))
        results = [result for part in results_by_node for result in part.results]
        last = _multi_node(inputs, cluster, jobs, results)
    finally:
        jobs.close()
    return SuiteResult([*(check for part in results_by_node for check in part.checks), *last], results)


def _multi_node(inputs: Inputs, cluster: SlurmSnapshot, jobs: Jobs, results: list[dict[str, Any]]) -> list[Check]:
    """All-reduce between nodes goes into the first one's result; or why there is none."""
    if len(inputs.tested) < 2:
        return []
    if not inputs.nccl:
        return [skipped(MULTI_NODE, inputs.cluster, multi_node.NO_NCCL)]
    able = [result["node"] for result in results if result.get("gpus")]
    together = multi_node.choose(
        {name: placement.choose(cluster.nodes[name], cluster.partitions) for name in able}, cluster.nodes
    )
    if together is None:
        return [skipped(MULTI_NODE, inputs.cluster, multi_node.TOO_FEW)]
    session = jobs.long(cluster.gpus(together.nodes[0]), cluster.partitions[together.partition])
    first = next(result for result in results if result["node"] == together.nodes[0])
    first["group"] = dict(
        first.get("group") or {}, all_reduce_nodes=multi_node.measure(session, inputs, together, cluster.nodes)
    )
    return []


def _node(name: str, inputs: Inputs, cluster: SlurmSnapshot, jobs: Jobs) -> SuiteResult:
    """One node, from its place in the queue to its result."""
    node = cluster.nodes.get(name)
    if node is None:
        text = "Slurm does not know this node: `deepopsctl deploy` makes it known"
        return SuiteResult([failed(measurement.NAME, name, text, "no job", "a result")], [])
    if not cluster.gpus(name):
        text = f"Slurm schedules no GPU here, cluster.yml declares {inputs.declared[name].cards}"
        return SuiteResult([failed(measurement.NAME, name, text, "no GPU", "a result")], [])
    reason = cluster.obstacles([name]).get(name)
    if not reason and not isolation.room(node):
        reason = f"busy: no {'whole core' if placement.free_gpus(node) > 0 else 'GPU'} is free"
    if reason:
        why = slurm_output.reason(node)
        text = f"{reason}{(f' ({why})' if why else '')}: no job was sent"
        return SuiteResult([*isolation.not_tried(name, text), skipped(measurement.NAME, name, text)], [])
    try:
        return _run_trials(name, inputs, cluster, jobs)
    except Exception as error:  # noqa: BLE001 (one node's trouble is not another's)
        return SuiteResult([measurement.lost(name, error).check], [])


def _run_trials(name: str, inputs: Inputs, cluster: SlurmSnapshot, jobs: Jobs) -> SuiteResult:
    node, declared = cluster.nodes[name], inputs.declared[name]
    place = Placement(placement.choose(node, cluster.partitions), [name])
    count = isolation.room(node)
    answers = isolation.ask(jobs.trials, place, count, declared.files)
    checks = isolation.evaluate(
        name, answers, count, confined=confinement.uses_cgroups(cluster.config), sliced=declared.sliced
    )
    session = jobs.long(cluster.gpus(name), cluster.partitions[place.partition])
    measured = measurement.measure(session, inputs, place, node)
    return SuiteResult([*checks, measured.check], [measured.result] if measured.result else [])
