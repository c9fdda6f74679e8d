"""The storage suite on the submit host: who can be tried, and every entry of `storage`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..._shared import slurm_output
from ..._shared.checks import FAIL, SKIP, Check, one_line
from ..._slurm_jobs import placement
from ..._slurm_jobs.session import Session
from ..._slurm_jobs.snapshot import SlurmSnapshot, read_snapshot
from . import rate_trials, trials
from .agent_pool import AgentPool
from .checks import check, place, skip
from .inputs import Bounds, Expected, Seen
from .trials import TrialContext

# so many seconds of a job's limit for each entry, in addition to its rates
_ENTRY_S = 180.0
NOT_CHECKED = "the node could not be checked, or it is not mounted there: see its other checks"
ALONE = "one node only has it: nothing to compare with"


class Inputs(NamedTuple):
    """`wanted` and `seen` are by node: entries in cluster.yml order, and those its own checks found usable."""

    cluster: str
    submit: str
    compute: Sequence[str]
    wanted: Mapping[str, Sequence[Expected]]
    seen: Mapping[str, Mapping[str, Seen]]
    bounds: Bounds = Bounds()

    @property
    def entries(self) -> list[Expected]:
        """Every entry that a node here has."""
        entries_by_name: dict[str, Expected] = {}
        for listed in self.wanted.values():
            for entry in listed:
                entries_by_name.setdefault(entry.name, entry)
        return list(entries_by_name.values())

    def usable_on(self, entry: Expected, among: Sequence[str]) -> list[str]:
        """The nodes among these that have the entry in usable order."""
        return [node for node in among if entry.name in self.seen.get(node, {})]

    def seconds(self) -> float:
        """The longest that all trials may take."""
        rounds = 2 * len(rate_trials.RATE_TYPES) * (self.bounds.alone + 1)
        return 60 + len(self.entries) * (_ENTRY_S + rounds * self.bounds.seconds)

    def minutes(self, snapshot: SlurmSnapshot) -> dict[str, int]:
        """The time limit of a job, by partition: never more than that allows."""
        wanted = -(-int(self.seconds()) // 60)
        most = {name: slurm_output.minutes(entry.get("MaxTime", "")) for name, entry in snapshot.partitions.items()}
        return {name: wanted if limit is None else max(1, min(wanted, limit)) for name, limit in most.items()}


def verify_storage(inputs: Inputs, session: Session, pool: AgentPool) -> list[Check]:
    """All trials; whatever happens, no job and no file is left."""
    mine = [name for name in inputs.compute if inputs.wanted.get(name)]
    try:
        local = inputs.submit not in inputs.compute and bool(inputs.seen.get(inputs.submit))
        if local:
            pool.add_local(inputs.submit)
        checks = _start_agents(inputs, pool, [name for name in mine if inputs.seen.get(name)])
        for entry in inputs.entries:
            checks += _entry(inputs, entry, pool, session.token)
        return checks
    finally:
        pool.stop()
        session.close()


def _start_agents(inputs: Inputs, pool: AgentPool, names: Sequence[str]) -> list[Check]:
    """Start agents on all nodes that have room; a check for each entry of those that take no part."""
    snapshot = read_snapshot()
    if not snapshot.answered:
        targets = [place(name, entry.name) for name in names for entry in inputs.wanted[name]]
        return [check(trials.WRITE, target, FAIL, "no job", "a job", message=snapshot.silence) for target in targets]
    why = {name: (SKIP, "Slurm does not know this node") for name in names if name not in snapshot.nodes}
    why.update({name: (SKIP, reason + ": no job was sent") for name, reason in snapshot.obstacles(names).items()})
    ready = [name for name in names if name not in why]
    troubles = (
        pool.start(placement.place(ready, snapshot.nodes, snapshot.partitions), inputs.minutes(snapshot))
        if ready
        else {}
    )
    why.update({name: (what.status, what.message) for name, what in troubles.items()})
    return [
        check(trials.WRITE, place(name, entry.name), status, "no job" if status == FAIL else "", message=reason)
        for name, (status, reason) in why.items()
        for entry in inputs.wanted[name]
        if entry.name in inputs.seen[name]
    ]


def _entry(inputs: Inputs, entry: Expected, pool: AgentPool, token: str) -> list[Check]:
    """One entry, from the first file to the last."""
    nodes = inputs.usable_on(entry, pool.nodes)
    out = [
        name
        for name in inputs.compute
        if entry in inputs.wanted.get(name, ()) and name not in inputs.usable_on(entry, inputs.compute)
    ]
    checks = [skip(trials.WRITE, place(name, entry.name), NOT_CHECKED) for name in out]
    if not nodes:
        return checks
    seen = {node: inputs.seen[node][entry.name] for node in nodes}
    context = TrialContext(entry, nodes, seen, pool, token, inputs.bounds)
    if entry.read_only:
        trials.read_only(context)
        return checks + context.checks
    try:
        _run_trials(context, inputs)
    except Exception as error:  # noqa: BLE001 (one entry's trouble is not another's)
        context.checks.append(
            check(trials.WRITE, entry.name, FAIL, "an error", "written", message=one_line(repr(error)))
        )
    finally:
        _remove_directory(context)
    # on a host without jobs its own check tests whether the user can write
    reported = [] if inputs.submit in inputs.compute else [(trials.WRITE, context.target(inputs.submit))]
    return checks + [
        entry_check for entry_check in context.checks if (entry_check["name"], entry_check["target"]) not in reported
    ]


def _run_trials(context: TrialContext, inputs: Inputs) -> None:
    wrote = trials.write(context)
    # in the cluster's order, whichever answered first: each run compares with the same node
    measured = [node for node in inputs.compute if node in wrote]
    if not context.entry.shared:
        if measured:
            rate_trials.rates(context, measured)
        return
    if len(wrote) < 2:
        for name in trials.TOGETHER if wrote else ():
            context.skip(name, wrote, ALONE)
    else:
        # the first that writes is a node of the cluster, not a login node
        wrote = [*measured, *(node for node in wrote if node not in measured)]
        trials.make_late(context, wrote)
        made = time.monotonic()
        for trial in (trials.visible, trials.renames, trials.locks):
            still = [node for node in wrote if node in context.nodes]
            if len(still) > 1:
                trial(context, still)
    if measured:
        rate_trials.rates(context, [node for node in measured if node in context.nodes])
    still = [node for node in wrote if node in context.nodes]
    if len(wrote) > 1 and len(still) > 1:
        trials.late(context, still, time.monotonic() - made)


def _remove_directory(context: TrialContext) -> None:
    """Remove the trial's directory; what remains is reported."""
    if not context.directory:
        return
    nodes = context.nodes[:1] if context.entry.shared else context.nodes
    for node, result in context.order_on(
        "remove", nodes, 2 * context.bounds.answer_s, directories=[context.directory]
    ).items():
        if result.get("left") or "error" in result:
            context.add_check(
                "storage-clean", node, FAIL, "left", "removed", f"{context.directory} could not be removed"
            )
