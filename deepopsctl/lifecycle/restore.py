"""`restore`: a controller that was lost comes back with its queue, its accounting and its keys.

The set is fetched and compared before anything is changed. slurmctld is stopped on all controllers, and starts on the
set with all partitions down, so that no job starts before the queue has been compared with the nodes; what ran when the
set was made and does not run any more is held, and so is what has started since. Nodes are asked for living steps
before slurmctld starts: it ends those of jobs that it has as waiting. The deploy at the end opens the partitions.
Every step can be repeated: after an interruption, run it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.content import components
from deepopsctl.lifecycle.backup import ACCOUNTING, STATE, hint_for, saved_nodes, saves_monitoring
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.nodes.workflow import SLURM, Flow, Operator, Report, StoppedError, require_success
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.text.amounts import amount
from deepopsctl.text.answers import items, mappings, members, number, texts
from deepopsctl.text.node_sets import fold

PARTS = (STATE, ACCOUNTING)
FETCH, FORGET, RECONCILE = (
    "operate/restore/restore-fetch",
    "operate/restore/restore-forget",
    "operate/restore/restore-reconcile",
)
STOP = "operate/restore/restore-stop"
# jobs that were submitted after the set was made have had some of the next ids
SPARE_IDS = 1000
REGISTER_S = 120
# jobs that are on no node any more, by what became of them: (what, hint)
_LOST = {
    "held": (
        "ran when the backup was made and do not run now, so they are held",
        "`scontrol release JOB` runs one again, `scancel JOB` removes it",
    ),
    "began": (
        "waited when the backup was made and have started since, so they are held",
        "Slurm has ended what ran; `scontrol release JOB` starts one from the beginning, `scancel JOB` removes it",
    ),
    "unsure": (
        "waited when the backup was made and may have started since, so they are held",
        "`scontrol release JOB` starts one that has not, `scancel JOB` removes one that has",
    ),
    "stuck": (
        "are on none of their nodes any more, and Slurm can't requeue them",
        "they hold their nodes until `scancel JOB`",
    ),
}


@dataclass(frozen=True, slots=True)
class Restore:
    """The options of `restore`: a snapshot ('' for the newest), and what is brought back."""

    snapshot: str = ""
    parts: tuple[str, ...] = PARTS


def restore(directory: ClusterDir, wanted: Restore, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    cluster = directory.cluster()
    flow = Flow(directory, base, operator, Report("restore", tuple(node.name for node in saved_nodes(cluster))))
    with flow.reporting(), flow.lock():
        _Restore(flow, cluster, wanted).restore_all()
    return flow.report


@dataclass(slots=True)
class _Restore:
    flow: Flow
    cluster: Cluster
    wanted: Restore
    # the jobs that had steps on each node, and the nodes that did not say
    living: dict[str, list[int]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    # components that were deployed, by the sets and by the nodes that are left
    deployed: set[str] = field(default_factory=set)

    def restore_all(self) -> None:
        """All steps in order."""
        self.flow.survey(self.cluster, slurm=False)
        try:
            fetched = self._fetch()
            self.flow.confirm(self._question(fetched), self.cluster)
        except BaseException:
            # a deploy refuses a restore that has not ended
            self._run(self._center, FORGET)
            raise
        self._bring_back(fetched)
        compared = self._reconcile()
        self._open()
        self._conclude(compared)

    @property
    def _center(self) -> tuple[Node, ...]:
        return saved_nodes(self.cluster)

    def _fetch(self) -> dict[str, Mapping[str, object]]:
        self.flow.operator.info("fetch the backup, and compare each file with what was saved")
        variables = {"deepops_restore_snapshot": self.wanted.snapshot, "deepops_restore_parts": list(self.wanted.parts)}
        compute = self.cluster.compute if STATE in self.wanted.parts else ()
        outcome = self._run((*self._center, *compute), FETCH, **variables)
        require_success(outcome, self._center, "nothing was restored", _hint(outcome, "see `deepopsctl backup list`"))
        answers = {result.host: result.data["living"] for result in outcome.summary.results if "living" in result.data}
        self.living = {host: [*map(number, items(jobs))] for host, jobs in answers.items() if items(jobs)}
        self.silent = [node.name for node in compute if node.name not in answers]
        recorded = {name for result in outcome.summary.results for name in texts(result.data.get("components"))}
        sets: dict[str, Mapping[str, object]] = {}
        for entry in _returned(outcome, "restored"):
            sets.update({part: value.values for part, value in members(entry)})
        if set(sets) != set(self.wanted.parts):
            raise StoppedError("the nodes returned no backup: nothing was restored", "see `deepopsctl runs show`")
        # root of a compute node may claim any: of what nodes alone say, no more than cluster.yml lists
        listed = self.cluster.components
        saved = {name for each in sets.values() for name in texts(each.get("components"))}
        self.deployed = saved | (recorded if listed is None else recorded.intersection(listed))
        return sets

    def _question(self, fetched: Mapping[str, Mapping[str, object]]) -> str:
        saved = [
            f"{part} of {datetime.fromtimestamp(number(entry['finished']), UTC):%F %H:%M} UTC ({entry['snapshot']})"
            for part, entry in fetched.items()
        ]
        jobs = fetched.get(STATE, {}).get("jobs")
        queue = "" if jobs is None else f" with {amount(number(jobs), 'job')}"
        running = fetched.get(STATE, {}).get("running")
        # slurmctld ends what it does not have as running
        living = {job for jobs_here in self.living.values() for job in jobs_here}
        others = sorted(living.difference(map(number, items(running))))
        if jobs is not None and others:
            listed = ", ".join(map(str, others[:20])) + (" ..." if len(others) > 20 else "")
            self.flow.operator.info(
                f"  started since the backup was made and run now: {listed} on {fold(self.living)}; Slurm will end "
                "them. To let them end first, answer no"
            )
        if jobs is not None and self.silent:
            self.flow.operator.info(
                f"  {fold(self.silent)} did not answer: jobs that waited when the backup was made may run there, and "
                "will be held"
            )
        return f"restore {' and '.join(saved)}{queue} on {fold(node.name for node in self._center)}?"

    def _bring_back(self, fetched: Mapping[str, Mapping[str, object]]) -> None:
        """Partitions are down: slurmctld learns what runs before it starts anything."""
        following = number(fetched.get(STATE, {}).get("next_job_id"))
        settings = {"FirstJobId": following + SPARE_IDS} if following else {}
        self.flow.operator.info("install Slurm with what was saved, all partitions down")
        # as a user's own variables, so that the deploy at the end knows these for another desired state
        living = {"jobs": self.living, "silent": self.silent}
        variables = {"deepops_restore": {"parts": list(self.wanted.parts), "settings": settings, "living": living}}
        base = replace(self.flow.base, user_vars=(*self.flow.base.user_vars, variables))
        playbooks = (STOP, SLURM) if STATE in self.wanted.parts else (SLURM,)
        outcome = replace(self.flow, base=base).run_playbooks(
            self.cluster, playbooks, [node.name for node in self.cluster.nodes]
        )
        hint = "`deepopsctl restore` continues from here; partitions are down until it has ended"
        try:
            require_success(outcome, self._center, "not all was restored", hint)
        except StoppedError as stop:
            # nothing was, where the cluster is not lost
            forgotten = self._run(self._center, FORGET)
            begun = [value["begun"] for value in _returned(forgotten, "restore")]
            if not begun or any(begun):
                raise
            again = "then run it again, if something is lost; nothing is under way"
            raise StoppedError(
                f"{fold(node.name for node in self._center)} refused: nothing was restored",
                _hint(outcome, f"do what the message says, {again}"),
                stop.exit_code,
            ) from stop

    def _reconcile(self) -> Mapping[str, object]:
        self.flow.operator.info("compare the queue with what was saved")
        parts = {"deepops_restore_parts": list(self.wanted.parts)}
        outcome = self._run(self.cluster.nodes, RECONCILE, deepops_restore_timeout=REGISTER_S, **parts)
        require_success(outcome, self._center, "all partitions are down", "`deepopsctl restore` continues from here")
        # the host of slurmdbd has nothing to compare
        return next(filter(None, _returned(outcome, "reconciled")), {})

    def _open(self) -> None:
        """A deploy as every other: from here on it is all that is needed."""
        self.flow.operator.info("open the partitions, and deploy what else runs there")
        # not what cluster.yml lists: what was never deployed is not this command's to begin
        wanted = {SLURM, *self.flow.deployed, *self.deployed}
        order = [name for name in components(self.flow.base.content) if name in wanted]
        outcome = self._run(self.cluster.nodes, *order)
        require_success(outcome, self._center, "the backup is restored", "`deepopsctl deploy` finishes it")

    def _conclude(self, compared: Mapping[str, object]) -> None:
        for kind, (what, hint) in _LOST.items():
            if lost := mappings(compared.get(kind)):
                jobs = ", ".join(f"{job['id']} ({job['user']})" for job in lost)
                self.flow.report.warnings.append(f"{what}: {jobs}; {hint}")
        if silent := texts(compared.get("silent")):
            self.flow.report.warnings.append(f"{fold(silent)} has not answered slurmctld: see `deepopsctl status`")
        if saves_monitoring(self.flow.directory) and set(self._center) & set(self.cluster.with_role(Role.MONITORING)):
            self.flow.report.warnings.append(
                "if Prometheus' data was lost as well: `deepopsctl restore --only monitoring`"
            )
        closing = f"{self.cluster.name} is restored"
        if compared:
            runs = amount(number(compared.get("running")), "job runs", "jobs run")
            closing += f": {runs}, {amount(number(compared.get('pending')), 'waits', 'wait')}"
        self.flow.report.closing = closing

    def _run(self, nodes: tuple[Node, ...], *playbooks: str, **extra: object) -> RunOutcome:
        return self.flow.run_playbooks(self.cluster, playbooks, [node.name for node in nodes], **extra)


def _hint(outcome: RunOutcome, otherwise: str) -> str:
    """What to do about the first failure whose words are known."""
    return next(filter(None, (hint_for(failure.message) for failure in outcome.summary.failures)), otherwise)


def _returned(outcome: RunOutcome, key: str) -> Iterator[Mapping[str, object]]:
    for result in outcome.summary.results:
        value = result.data.get(key)
        if isinstance(value, Mapping):
            yield value
