"""Drain and resume nodes: `node drain`, `node resume`, and the drain that comes before other commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from deepopsctl.errors import ExitCode, RunTimeoutError
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.json_objects import DrainObject
from deepopsctl.nodes.wait_for_jobs import SHOWN_JOBS, job_words, wait_for_jobs
from deepopsctl.nodes.workflow import NODE_STATE, Flow, StoppedError, encode_reason, state_of
from deepopsctl.run.outcome import Failure, RunOutcome, TaskResult
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmJob, SlurmState, state_in
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold

GPU_CHECK = "operate/nodes/gpu-check"


class DrainAction(StrEnum):
    """The requested action."""

    DRAIN = "drain"
    RESUME = "resume"


_DONE = {DrainAction.DRAIN: "drained", DrainAction.RESUME: "resumed"}
_UNCHANGED = {"none": "unchanged", "kept": "kept", "refused": "refused"}


@dataclass(frozen=True, slots=True)
class DrainedNode:
    """One node: `action` is drained, resumed, unchanged, kept (another user's drain) or refused."""

    name: str
    action: str
    message: str
    jobs: tuple[SlurmJob, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether this run changed the node."""
        return self.action in _DONE.values()


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The result of a drain or resume; refused nodes are failures of the outcome."""

    action: DrainAction
    outcome: RunOutcome
    nodes: tuple[DrainedNode, ...]
    slurm: SlurmState

    @property
    def jobs(self) -> tuple[SlurmJob, ...]:
        """Jobs that still run on the nodes, each once."""
        return tuple(dict.fromkeys(job for node in self.nodes for job in node.jobs))

    @property
    def word(self) -> str:
        """The action as a participle."""
        return _DONE[self.action]

    def without_jobs(self) -> DrainResult:
        """The same after the wait."""
        return replace(self, nodes=tuple(replace(node, jobs=()) for node in self.nodes))

    def document(self) -> DrainObject:
        """The JSON object: `deploy`'s, and the nodes."""
        states = self.slurm.nodes
        return {
            **self.outcome.as_object(),
            "command": f"node {self.action}",
            "nodes": [
                {
                    "name": node.name,
                    "action": node.action,
                    "message": node.message,
                    "state": states[node.name].word if node.name in states else None,
                    "reason": states[node.name].reason if node.name in states else "",
                    "jobs": [job.id for job in node.jobs],
                }
                for node in self.nodes
            ],
        }


def drain_request(
    base: RunRequest, action: DrainAction, names: Sequence[str], reason: str = "", gpus: Sequence[str] = ()
) -> RunRequest:
    """The run request, for the primary controller; the GPUs of the nodes `gpus` are compared before a resume."""
    compared = list(gpus) if action is DrainAction.RESUME else []
    first, *more = (GPU_CHECK, NODE_STATE) if compared else (NODE_STATE,)
    return replace(
        base,
        playbook=first,
        more=tuple(more),
        component="slurm",
        command=f"node-{action}",
        extra_vars={
            "deepops_nodes": list(names),
            "deepops_node_state": _DONE[action],
            "deepops_gpu_nodes": compared,
            "deepops_drain_reason": encode_reason(reason),
        },
    )


def read_drain_result(outcome: RunOutcome, action: DrainAction) -> DrainResult:
    """The result of the run; refused nodes are added to the summary in its run directory."""
    answer = next((result for result in outcome.summary.results if "drain" in result.data), TaskResult("", "", {}))
    slurm = state_in([answer.data])
    jobs = slurm.jobs_by_node
    nodes = tuple(
        DrainedNode(
            name := str(entry.get("name")),
            _UNCHANGED.get(str(entry.get("action")), _DONE[action]),
            str(entry.get("message")),
            jobs.get(name, ()),
        )
        for entry in answer.entries("drain")
    )
    refused = _failures([node for node in nodes if node.action == "refused"])
    if refused:
        summary = replace(outcome.summary, failures=(*outcome.summary.failures, *refused))
        outcome = replace(outcome, summary=summary)
        outcome.run_dir.write(outcome.run_dir.summary, outcome.as_object())
    return DrainResult(action, outcome, nodes, slurm)


def _failures(refused: Sequence[DrainedNode]) -> tuple[Failure, ...]:
    """A failure for each node; those with the same reason share a hint that names them all."""
    names_by_message: dict[str, list[str]] = {}
    for node in refused:
        names_by_message.setdefault(node.message, []).append(node.name)
    hints = {message: _hint(message, fold(names)) for message, names in names_by_message.items()}
    return tuple(Failure(node.name, "slurm", "Resume the node", node.message, hints[node.message]) for node in refused)


def _hint(message: str, names: str) -> str:
    resume = f"`scontrol update nodename={names} state=resume` on a controller"
    if message.startswith("drained by"):
        return f"deepopsctl resumes only its own drains: ask that user, then {resume}"
    if message.startswith("its GPUs"):
        return (
            "a GPU that fell off the bus may come back after a reboot (see `dmesg | grep -i xid` on the node); "
            "otherwise correct `gpus:` in cluster.yml, deploy, and resume again"
        )
    if message.startswith("Slurm has no node"):
        return "`deepopsctl deploy` adds it to Slurm"
    return f"fix it first (see `deepopsctl status`), then {resume}"


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Seconds to wait for running jobs, and whether to cancel them instead; whether waiting jobs may be held."""

    names: str
    timeout_s: int
    force: bool = False
    hold_waiting: bool = False


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """The drain of some nodes, for the command `verb`."""

    flow: Flow
    cluster: Cluster
    names: Sequence[str]
    verb: str
    options: DrainOptions

    def show_jobs(self, slurm: SlurmState) -> None:
        """Show the running jobs, and what happens to them."""
        if not self.names:
            return
        jobs = slurm.jobs_on(self.names)
        for line in _lines(jobs, self.names, self.options):
            self.flow.operator.info(line)

    def show_waiting(self, slurm: SlurmState) -> None:
        """Refuse to continue while waiting jobs need the nodes, or show that they will be held."""
        jobs = slurm.waiting_for_leaving
        if not jobs:
            return
        lines = [f"  job {job.id} of {job.user} waits: {job.reason}" for job in jobs[:SHOWN_JOBS]]
        lines += [f"  and {len(jobs) - SHOWN_JOBS} more"] if len(jobs) > SHOWN_JOBS else []
        for line in lines:
            self.flow.operator.info(line)
        lost = [job for job in jobs if not (self.options.hold_waiting and job.can_be_held)]
        if lost:
            listed = ", ".join(f"{job.id} ({job.user})" for job in lost[:SHOWN_JOBS])
            more = f" and {len(lost) - SHOWN_JOBS} more" if len(lost) > SHOWN_JOBS else ""
            instead = f"; `deepopsctl node {self.verb} {fold(self.names)} --hold-waiting` holds them instead"
            raise StoppedError(
                f"nothing was {self.verb}d: without {fold(self.names)} Slurm would end waiting jobs, or never start "
                f"them: {listed}{more}",
                "let them run first, have their users change them (scontrol update jobid=NUMBER reqnodelist=...), or "
                f"cancel them{instead if all(job.can_be_held for job in lost) else ''}",
            )
        self.flow.operator.info(f"{amount(len(jobs), 'waiting job')}: held until released (--hold-waiting)")

    def drain(self) -> None:
        """Let no new job start; with --force, cancel running jobs."""
        if self.names:
            self.flow.operator.info(f"drain {fold(self.names)}")
            self._drain(force=self.options.force)

    def wait(self) -> None:
        """Wait until no job is left, or until the timeout: then the nodes stay drained and nothing else was done."""
        if self.names and not self.options.force:
            self.flow.idle(self._wait)

    def require_no_jobs(self) -> None:
        """Drain again: a user may have resumed the nodes meanwhile."""
        if self.names and (left := self._drain(force=False)):
            raise self._late(left)

    def _drain(self, *, force: bool) -> tuple[SlurmJob, ...]:
        stands = f"{fold(self.names)} may be drained; nothing else was changed"
        outcome = self.flow.set_node_state(
            self.cluster,
            "out_of_service",
            self.names,
            stands,
            self._back,
            f"node {self.verb}",
            deepops_cancel_jobs=force,
        )
        return state_of(outcome).jobs_on(self.names)

    def _wait(self) -> None:
        left: list[tuple[SlurmJob, ...]] = []

        def show_jobs(jobs: tuple[SlurmJob, ...]) -> None:
            left.append(jobs)
            self.flow.operator.info(
                f"  {job_words(jobs)} still there (Ctrl-C ends the wait, {fold(self.names)} stays drained)"
            )

        try:
            wait_for_jobs(self.flow.base, self.names, self.options.timeout_s, show_jobs)
        except RunTimeoutError as error:
            raise self._late(left[-1] if left else ()) from error

    def _late(self, jobs: Sequence[SlurmJob]) -> StoppedError:
        reason = f"{job_words(jobs)} still there" if jobs else "the controller did not answer"
        waited = "" if self.options.force else f" after {self.options.timeout_s} s"
        return StoppedError(
            f"nothing was {self.verb}d: {reason}{waited}; {fold(self.names)} stays drained, so that no new job starts",
            f"run the command again to continue waiting; {self._back}",
            ExitCode.TIMEOUT,
        )

    @property
    def _back(self) -> str:
        return f"`deepopsctl node resume {fold(self.names)}` ends the drain"


def _lines(jobs: Sequence[SlurmJob], names: Sequence[str], options: DrainOptions) -> Iterator[str]:
    if not jobs:
        yield f"no job on {fold(names)}"
        return
    for job in jobs[:SHOWN_JOBS]:
        yield f"  job {job.id} of {job.user} {job.state.lower()} on {fold(job.nodes)}"
    if len(jobs) > SHOWN_JOBS:
        yield f"  and {len(jobs) - SHOWN_JOBS} more"
    whose = "it is" if len(jobs) == 1 else "they are"
    end = f"{whose} CANCELLED (--force)" if options.force else f"wait at most {options.timeout_s} s for their end"
    yield f"{amount(len(jobs), 'job')} on {fold(names)}: {end}"
