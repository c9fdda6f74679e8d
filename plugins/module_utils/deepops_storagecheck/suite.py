"""The storage suite on the submit host: who can be tried, and every entry of `storage`."""

from __future__ import annotations

import time
from typing import Dict, List, Mapping, NamedTuple, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import picture, placement, slurmtext
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.session import Session

from . import ratetrials, trials
from .crew import Crew
from .inputs import Bounds, Expected, Seen
from .scene import Scene
from .telling import FAIL, SKIP, Verdict, check, one_line, place, skip

# so many seconds of a job's limit for each entry, beside its rates
_ENTRY_S = 180.0
NOT_LOOKED = "the node could not be looked at, or it is not mounted there: see its other checks"
ALONE = "one node only has it: nobody to compare with"


class Inputs(NamedTuple):
    """`wanted` and `seen` are by node: entries in the order of cluster.yml, and what the node's look found usable."""

    cluster: str
    submit: str
    compute: Sequence[str]
    wanted: Mapping[str, Sequence[Expected]]
    seen: Mapping[str, Mapping[str, Seen]]
    bounds: Bounds = Bounds()

    @property
    def entries(self) -> List[Expected]:
        """Every entry that a node here has."""
        found: Dict[str, Expected] = {}
        for listed in self.wanted.values():
            for entry in listed:
                found.setdefault(entry.name, entry)
        return list(found.values())

    def takers(self, entry: Expected, among: Sequence[str]) -> List[str]:
        """The nodes among these that have the entry in usable order."""
        return [node for node in among if entry.name in self.seen.get(node, {})]

    def seconds(self) -> float:
        """The longest that all trials may take."""
        rounds = 2 * len(ratetrials.KINDS) * (self.bounds.alone + 1)
        return 60 + len(self.entries) * (_ENTRY_S + rounds * self.bounds.seconds)

    def minutes(self, seen: picture.Picture) -> Dict[str, int]:
        """The time limit of a job, by partition: never more than that allows."""
        wanted = -(-int(self.seconds()) // 60)
        most = {name: slurmtext.minutes(entry.get("MaxTime", "")) for name, entry in seen.partitions.items()}
        return {name: wanted if limit is None else max(1, min(wanted, limit)) for name, limit in most.items()}


def run(inputs: Inputs, session: Session, crew: Crew) -> List[Verdict]:
    """All trials; whatever happens, no job and no file is left."""
    mine = [name for name in inputs.compute if inputs.wanted.get(name)]
    try:
        local = inputs.submit not in inputs.compute and bool(inputs.seen.get(inputs.submit))
        if local:
            crew.enlist(inputs.submit)
        checks = _muster(inputs, crew, [name for name in mine if inputs.seen.get(name)])
        for entry in inputs.entries:
            checks += _entry(inputs, entry, crew, session.token)
        return checks
    finally:
        crew.dismiss()
        session.close()


def _muster(inputs: Inputs, crew: Crew, names: Sequence[str]) -> List[Verdict]:
    """Start agents on all nodes that have room; a check for each entry of those that take no part."""
    seen = picture.take()
    if not seen.answered:
        text = "slurmctld does not answer: " + one_line(seen.answers["nodes"].said or seen.answers["ping"].said)
        targets = [place(name, entry.name) for name in names for entry in inputs.wanted[name]]
        return [check(trials.WRITE, target, FAIL, "no job", "a job", message=text) for target in targets]
    why = {name: (SKIP, "Slurm does not know this node") for name in names if name not in seen.nodes}
    why.update({name: (SKIP, reason + ": no job was sent") for name, reason in seen.obstacles(names).items()})
    ready = [name for name in names if name not in why]
    troubles = crew.muster(placement.place(ready, seen.nodes, seen.partitions), inputs.minutes(seen)) if ready else {}
    why.update({name: (what.status, what.message) for name, what in troubles.items()})
    return [
        check(trials.WRITE, place(name, entry.name), status, "no job" if status == FAIL else "", message=reason)
        for name, (status, reason) in why.items()
        for entry in inputs.wanted[name]
        if entry.name in inputs.seen[name]
    ]


def _entry(inputs: Inputs, entry: Expected, crew: Crew, token: str) -> List[Verdict]:
    """One entry, from the first file to the last."""
    nodes = inputs.takers(entry, crew.nodes)
    out = [
        name
        for name in inputs.compute
        if entry in inputs.wanted.get(name, ()) and name not in inputs.takers(entry, inputs.compute)
    ]
    checks = [skip(trials.WRITE, place(name, entry.name), NOT_LOOKED) for name in out]
    if not nodes:
        return checks
    seen = {node: inputs.seen[node][entry.name] for node in nodes}
    scene = Scene(entry, nodes, seen, crew, token, inputs.bounds)
    if entry.read_only:
        trials.read_only(scene)
        return checks + scene.checks
    try:
        _tried(scene, inputs)
    except Exception as error:  # noqa: BLE001 (one entry's trouble is no other's)
        scene.checks.append(check(trials.WRITE, entry.name, FAIL, "an error", "written", message=one_line(repr(error))))
    finally:
        _clean(scene)
    # of a machine without jobs its own look says whether the user can write
    told = [] if inputs.submit in inputs.compute else [(trials.WRITE, scene.target(inputs.submit))]
    return checks + [found for found in scene.checks if (found["name"], found["target"]) not in told]


def _tried(scene: Scene, inputs: Inputs) -> None:
    wrote = trials.write(scene)
    # in the cluster's order, whichever answered first: each run compares with the same node
    measured = [node for node in inputs.compute if node in wrote]
    if not scene.entry.shared:
        if measured:
            ratetrials.rates(scene, measured)
        return
    if len(wrote) < 2:
        for name in trials.TOGETHER if wrote else ():
            scene.skip(name, wrote, ALONE)
    else:
        # the first that writes is a node of the cluster, not a login node
        wrote = [*measured, *(node for node in wrote if node not in measured)]
        trials.make_late(scene, wrote)
        made = time.monotonic()
        for trial in (trials.visible, trials.renames, trials.locks):
            still = [node for node in wrote if node in scene.nodes]
            if len(still) > 1:
                trial(scene, still)
    if measured:
        ratetrials.rates(scene, [node for node in measured if node in scene.nodes])
    still = [node for node in wrote if node in scene.nodes]
    if len(wrote) > 1 and len(still) > 1:
        trials.late(scene, still, time.monotonic() - made)


def _clean(scene: Scene) -> None:
    """Remove the trial's folder; what is left then is told."""
    if not scene.folder:
        return
    nodes = scene.nodes[:1] if scene.entry.shared else scene.nodes
    for node, result in scene.do("remove", nodes, 2 * scene.bounds.answer_s, folders=[scene.folder]).items():
        if result.get("left") or "error" in result:
            scene.tell("storage-clean", node, FAIL, "left", "removed", "{} could not be removed".format(scene.folder))
