"""Draining and resuming nodes: the run, its result, and the wait for running jobs."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from deepopsctl.errors import DeepOpsError, RunTimeoutError
from deepopsctl.run.command_line import RunRequest
from deepopsctl.run.outcome import Failure, RunOutcome, TaskResult
from deepopsctl.slurm.state import SlurmJob, SlurmState, state_in
from deepopsctl.text.node_sets import fold

NODE_STATE, SLURM_INFO, GPU_CHECK = (
    "operate/nodes/slurm-node-state",
    "operate/nodes/slurm-info",
    "operate/nodes/gpu-check",
)
# between two queries of the queue: short at first, because most waits are short
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 20.0


class DrainAction(StrEnum):
    """The requested action."""

    DRAIN = "drain"
    RESUME = "resume"


_DONE = {DrainAction.DRAIN: "drained", DrainAction.RESUME: "resumed"}
_UNCHANGED = {"none": "unchanged", "kept": "kept", "refused": "refused"}


@dataclass(frozen=True, slots=True)
class DrainedNode:
    """One node: `action` is drained, resumed, unchanged, kept (someone else's drain) or refused."""

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

    def document(self) -> dict[str, object]:
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


def encode_reason(text: str) -> str:
    """A reason as the playbook takes it: Ansible would treat braces as a template."""
    return b64encode(text.encode()).decode()


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


def slurm_now(request: RunRequest) -> SlurmState:
    """The state of Slurm as a wait queries it: `controller_up` says whether slurmctld answered."""
    from deepopsctl.run.runner import ask

    outcome = ask(replace(request, playbook=SLURM_INFO, more=(), command="node-wait", extra_vars={}))
    return state_in(result.data for result in outcome.summary.results)


def wait_for_jobs(
    request: RunRequest, names: Iterable[str], timeout: float, on_change: Callable[[tuple[SlurmJob, ...]], None]
) -> None:
    """Return when no job runs on the nodes; `on_change` is called with them whenever they change."""
    wanted, deadline, pause = tuple(names), time.monotonic() + timeout, FIRST_PAUSE_S
    reported: tuple[SlurmJob, ...] = ()
    while True:
        state = slurm_now(request)
        jobs = state.jobs_on(wanted)
        if state.controller_up and not jobs:
            return
        if jobs and jobs != reported:
            on_change(jobs)
            reported = jobs
        if timeout and time.monotonic() + pause > deadline:
            raise _late(timeout, wanted, jobs, state)
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def _late(timeout: float, names: Sequence[str], jobs: Sequence[SlurmJob], state: SlurmState) -> DeepOpsError:
    what = f"jobs {', '.join(job.id for job in jobs)} still run on {fold(names)}" if jobs else state.error
    return RunTimeoutError(
        f"after {timeout:g} s {what or 'the controller did not answer'}",
        "the nodes stay drained: wait again with the same command, or end the jobs with scancel",
    )
