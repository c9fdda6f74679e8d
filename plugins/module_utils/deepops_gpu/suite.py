"""The GPU suite as a whole: which nodes can be tried, their jobs, what came of them. Runs as the cluster's user."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, NamedTuple, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import (
    confinement,
    picture,
    placement,
    slurmtext,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.picture import Picture
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.placement import Placement
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.session import Running, Session
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.verdict import Verdict, failed, skipped

from . import between, isolation, measuring
from .inputs import Inputs

SUITE = "gpu"
# nodes at a time: each has one srun while it is measured, and the queue is asked about it every few seconds
WORKERS = 48
NOTHING, BETWEEN = "gpu-nodes", "gpu-all-reduce-nodes"
_TRIAL_S = 30
_SUBMITTING_S = 1.0


class Found(NamedTuple):
    """Checks, and gpucheck's result of every node that gave one."""

    checks: List[Verdict]
    results: List[Dict[str, Any]]


class StoppedError(Exception):
    """Nobody waits for the jobs any more: none is started."""


class Jobs:
    """The sessions of one validation: trials are short, measurements get the time that their GPUs need."""

    def __init__(self, token: str, inputs: Inputs) -> None:
        self._token, self._inputs = token, inputs
        self._gone = threading.Event()
        self.trials = self._session(_TRIAL_S, 2)

    def _session(self, run_timeout: float, minutes: int) -> Session:
        mine = self._inputs
        return _Session(self._gone, self._token, mine.user, mine.queue_timeout, run_timeout, SUITE, minutes)

    def long(self, gpus: int, partition: slurmtext.Record) -> Session:
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


def run(inputs: Inputs, jobs: Jobs) -> Found:
    """All nodes at the same time; whatever happens, no job is left."""
    if not inputs.tested:
        text = "none of these nodes has GPUs in cluster.yml: nothing to test"
        return _labelled([skipped(NOTHING, inputs.cluster, text)], [])
    seen = picture.take()
    if not seen.answered:
        checks = [failed(measuring.NAME, name, seen.silence, "no job", "a result") for name in inputs.tested]
        return _labelled(checks, [])
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            found = list(pool.map(lambda name: _node(name, inputs, seen, jobs), inputs.tested))
        results = [result for part in found for result in part.results]
        last = _between(inputs, seen, jobs, results)
    finally:
        jobs.close()
    return _labelled([*(check for part in found for check in part.checks), *last], results)


def _between(inputs: Inputs, seen: Picture, jobs: Jobs, results: List[Dict[str, Any]]) -> List[Verdict]:
    """All-reduce between nodes goes into the first one's result; or why there is none."""
    if len(inputs.tested) < 2:
        return []
    if not inputs.nccl:
        return [skipped(BETWEEN, inputs.cluster, between.NO_NCCL)]
    able = [result["node"] for result in results if result.get("gpus")]
    together = between.choose({name: placement.choose(seen.nodes[name], seen.partitions) for name in able}, seen.nodes)
    if together is None:
        return [skipped(BETWEEN, inputs.cluster, between.TOO_FEW)]
    session = jobs.long(seen.gpus(together.nodes[0]), seen.partitions[together.partition])
    first = next(result for result in results if result["node"] == together.nodes[0])
    first["group"] = dict(
        first.get("group") or {}, all_reduce_nodes=between.measure(session, inputs, together, seen.nodes)
    )
    return []


def _labelled(checks: List[Verdict], results: List[Dict[str, Any]]) -> Found:
    return Found([dict(check, suite=SUITE) for check in checks], results)


def _node(name: str, inputs: Inputs, seen: Picture, jobs: Jobs) -> Found:
    """One node, from its place in the queue to its result."""
    node = seen.nodes.get(name)
    if node is None:
        text = "Slurm does not know this node: `deepopsctl deploy` makes it known"
        return Found([failed(measuring.NAME, name, text, "no job", "a result")], [])
    if not seen.gpus(name):
        text = "Slurm schedules no GPU here, cluster.yml declares {}".format(inputs.declared[name].cards)
        return Found([failed(measuring.NAME, name, text, "no GPU", "a result")], [])
    reason = seen.obstacles([name]).get(name) or ("" if placement.free_gpus(node) else "busy: no GPU is free")
    if reason:
        why = slurmtext.reason(node)
        text = "{}{}: no job was sent".format(reason, " ({})".format(why) if why else "")
        return Found([*isolation.not_tried(name, text), skipped(measuring.NAME, name, text)], [])
    try:
        return _tried(name, inputs, seen, jobs)
    except Exception as error:  # noqa: BLE001 (one node's trouble is no other's)
        return Found([measuring.lost(name, error).check], [])


def _tried(name: str, inputs: Inputs, seen: Picture, jobs: Jobs) -> Found:
    node, declared = seen.nodes[name], inputs.declared[name]
    place = Placement(placement.choose(node, seen.partitions), [name])
    count = isolation.room(node)
    told = isolation.ask(jobs.trials, place, count, declared.files)
    checks = isolation.judge(name, told, count, confinement.uses_cgroups(seen.config), declared.sliced)
    session = jobs.long(seen.gpus(name), seen.partitions[place.partition])
    measured = measuring.measure(session, inputs, place, node)
    return Found([*checks, measured.check], [measured.result] if measured.result else [])
