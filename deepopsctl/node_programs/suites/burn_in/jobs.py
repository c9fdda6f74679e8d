"""The jobs of one burn-in in Slurm's queue: submit, query and cancel them. Runs as the cluster's user."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..._shared import archive, command, slurm_client, slurm_output
from ..._shared.checks import one_line
from ..._shared.node_states import ON_NODES
from ..._shared.waiting import wait_until
from ..._slurm_jobs import slurm, snapshot
from ..._slurm_jobs.session import Session, job_name
from ..gpu_check.burn.evaluation import SUITE
from . import plan, script
from .plan import Batch, LoadRequest, Plan

# job, node, state, reason, seconds used; one line a task also where Slurm folds an array
_FORMAT = "%i|%N|%T|%r|%M"
# what is still, or will be, on a node
ACTIVE = ON_NODES | {"PENDING"}
_LEAVING_S = 90.0


class Task(NamedTuple):
    """One task of an array, as the queue had it last."""

    id: str
    node: str
    state: str
    reason: str
    used_s: int


def session(token: str, user: str, minutes: int = 1, reservation: str = "") -> Session:
    """The jobs of one burn-in are known by their names."""
    return Session(SUITE, token, user, minutes=minutes, reservation=reservation)


def output(token: str, identifier: str = "%A_%a") -> str:
    """Where a task writes: the user's home, where people's jobs write, whether shared or not."""
    return os.path.join(os.path.expanduser("~"), job_name(SUITE, token, identifier) + ".out")


def submit(jobs: Session, tested: Sequence[str], request: LoadRequest) -> Plan:
    """Submit an array for each partition and number of GPUs; nodes of an array that Slurm refuses are left alone."""
    cluster = snapshot.read_snapshot()
    if not cluster.answered:
        return Plan([], dict.fromkeys(tested, cluster.silence))
    sent = plan.plan(tested, request, cluster.nodes, cluster.partitions, plan.most_tasks(cluster.config))
    known, problem = query_tasks(jobs)
    if problem:
        # a call whose answer was lost may have submitted them
        hint = f"if an earlier call has: scancel --name={jobs.name('load')}"
        raise SystemExit(f"the queue can't be asked, and nothing was submitted ({problem}); {hint}")
    if known:
        return resumed(sent, known)
    accepted, left = [], dict(sent.left)
    for batch in sent.batches:
        arguments = script.arguments(request.seconds, request.memory_share, batch.gpus)
        chosen = plan.options(batch, request, cluster.nodes, output(jobs.token))
        answer = jobs.sbatch("load", chosen, script.script(archive.own(), arguments))
        # one that came too late may have been taken: its jobs are followed by their name
        if answer.ok or answer.status == command.TIMED_OUT:
            accepted.append(batch)
        else:
            left.update(dict.fromkeys(batch.nodes, "Slurm refused the job: " + one_line(answer.message)))
    return Plan(accepted, left)


def resumed(sent: Plan, known: Sequence[Task]) -> Plan:
    """What was submitted by a call whose answer was lost: nodes that are busy with our own tasks are not left alone."""
    loaded_nodes = sorted({task.node for task in known if task.node})
    left = {name: reason for name, reason in sent.left.items() if name not in loaded_nodes}
    return Plan([Batch("", 0, loaded_nodes), *sent.batches], left)


def query_tasks(jobs: Session) -> tuple[list[Task], str]:
    """All tasks that the queue knows, ended ones too as long as Slurm remembers them; and why it could not be asked."""
    options = ("--array", "--states=all", "--user=" + jobs.user, "--name=" + jobs.name("load"))
    answer = slurm.ask(slurm_client.squeue(_FORMAT, *options))
    if not answer.ok:
        return [], one_line(answer.message)
    return tasks(answer.output), ""


def tasks(out: str) -> list[Task]:
    """Lines of squeue."""
    rows = slurm_output.rows(out, _FORMAT)
    return [
        Task(job, node, state, reason, int(slurm_output.seconds(used) or 0)) for job, node, state, reason, used in rows
    ]


def cancel_pending(jobs: Session) -> None:
    """Cancel what has not started."""
    jobs.cancel(["--state=PENDING", "--name=" + jobs.name("load")])


def cancel(jobs: Session) -> list[Task]:
    """Cancel all of them, and wait until they have left the nodes; what is there after that."""

    def left() -> tuple[list[Task], str]:
        jobs.cancel(["--name=" + jobs.name("load")])
        known, problem = query_tasks(jobs)
        return [task for task in known if task.state in ACTIVE], problem

    still, problem = wait_until(left, _LEAVING_S, 0.5, lambda answer: not any(answer))
    if problem:
        # it is not known whether they are gone
        raise SystemExit(problem)
    return still


def as_dicts(known_tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """For Ansible, each with whether it is still, or will be, on a node."""
    return [dict(task._asdict(), active=task.state in ACTIVE) for task in known_tasks]
