"""A user's job on every node that has room, held until it is seen in Prometheus; compared with Slurm's own figures."""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..._shared import slurm_client
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._shared.waiting import wait_until
from ..._slurm_jobs import placement, slurm
from ..._slurm_jobs.session import POLL_INTERVAL_S, Running, Session
from ..._slurm_jobs.snapshot import SlurmSnapshot
from .checks import check, names, skip
from .web import Prometheus

JOB, NODES, COUNT, SLURM = "job-metrics", "slurm-nodes-agree", "slurm-jobs-agree", "slurm-metrics"


class Held(NamedTuple):
    """A job that waits to be let go, and the nodes it is on."""

    what: str
    nodes: Sequence[str]
    running: Running


class Trial(NamedTuple):
    """What is tried, for whom, and how long it may take to be seen (seconds).

    `measured`: jobs have control groups, without which it is not known what each uses.
    """

    prometheus: Prometheus
    session: Session
    cluster: str
    compute: Sequence[str]
    patience: float
    measured: bool = True


def hold(trial: Trial, snapshot: SlurmSnapshot) -> tuple[list[Held], list[Check]]:
    """Start a job on every node that has room; a skipped check for each of the others."""
    known = [name for name in trial.compute if name in snapshot.nodes]
    checks = [skip(JOB, name, "Slurm does not know this node") for name in trial.compute if name not in known]
    obstacles = snapshot.obstacles(known)
    checks += [skip(JOB, name, reason + ": no job was sent") for name, reason in obstacles.items()]
    ready = [name for name in known if name not in obstacles]
    places = placement.place(ready, snapshot.nodes, snapshot.partitions)
    jobs = [
        # ends with its input: nothing is left when the process that started this is gone
        Held(f"job{number}", place.nodes, trial.session.start(f"job{number}", place.options(), ["cat"]))
        for number, place in enumerate(places)
    ]
    return jobs, checks


def identified(trial: Trial, held: Held) -> tuple[str, str, str]:
    """The job's id and account, once it runs; or why it does not."""
    name = trial.session.name(held.what)
    argv = slurm_client.squeue("%i|%a|%T|%r", "--user=" + trial.session.user, "--name=" + name)

    def query_job() -> tuple[bool, tuple[str, str, str]]:
        answer = slurm.ask(argv)
        number, account, state, reason = ([*answer.output.strip().split("\n")[0].split("|"), "", "", "", ""])[:4]
        if state == "RUNNING":
            return True, (number, account, "")
        code = held.running.ended(0)
        if code is not None:
            return True, ("", "", one_line(held.running.text("err")) or f"exit code {code}")
        text = f"the job did not start in time; Slurm's reason: {reason or 'none given'}"
        return False, ("", "", text if answer.ok else one_line(answer.message))

    return wait_until(query_job, trial.session.queue_timeout, POLL_INTERVAL_S / 6, lambda answer: answer[0])[1]


def in_prometheus(trial: Trial, held: Held) -> list[Check]:
    """The job in Prometheus, with its user and account, from each of its nodes."""
    number, account, why = identified(trial, held)
    if not number:
        busy = why.startswith("the job did not start")
        return [check(JOB, node, SKIP if busy else FAIL, "no job", "a job", message=why) for node in held.nodes]
    wanted, user = set(held.nodes), getpass.getuser()
    started = time.monotonic()

    def query_job() -> dict[str, Mapping[str, str]]:
        return {labels.get("node", ""): labels for labels, _value in trial.prometheus.query(_job_query(trial, number))}

    labels_by_node = wait_until(query_job, trial.patience, 1.0, lambda seen: wanted <= set(seen))
    took = time.monotonic() - started
    return [
        _one(trial, node, labels_by_node.get(node), number, {"user": user, "account": account}, took)
        for node in held.nodes
    ]


def _job_query(trial: Trial, number: str) -> str:
    whose = f'deepops_job_info{{jobid="{number}"}}'
    return whose + " and on (node, jobid) deepops_job_cpus" if trial.measured else whose


def _one(
    trial: Trial, node: str, labels: Mapping[str, str] | None, number: str, wanted: Mapping[str, str], took: float
) -> Check:
    if labels is None:
        text = f"job {number} ran there for {took:.0f} s and is not in the metrics"
        return check(JOB, node, FAIL, "not seen", "seen", message=text)
    wrong = [
        f"{key} {labels.get(key) or 'none'} instead of {value}"
        for key, value in wanted.items()
        if labels.get(key) != value
    ]
    well = "with its user and account"
    well += "" if trial.measured else "; what it uses is not known: jobs have no control groups here"
    text = f"job {number} has {' and '.join(wrong)}" if wrong else well
    return check(JOB, node, FAIL if wrong else PASS, f"{took:.0f}", f"{trial.patience:g}", "s", text)


def compare_with_slurm(trial: Trial) -> list[Check]:
    """Nodes and running jobs, in Prometheus and in Slurm."""
    up = trial.prometheus.query("deepops_slurm_up")
    if not any(value == 1 for _labels, value in up):
        text = f"deepops-slurmmetrics {'reports that Slurm does not answer' if up else 'hands out nothing'}"
        return [check(SLURM, trial.cluster, FAIL, "down" if up else "nothing", "up", message=text),
                skip(NODES, trial.cluster, text), skip(COUNT, trial.cluster, text)]  # fmt: skip
    return [check(SLURM, trial.cluster, PASS, "up", "up"), _nodes(trial), _count(trial)]


def _nodes(trial: Trial) -> Check:
    def read_nodes() -> tuple[set[str], set[str]]:
        answer = slurm.ask(slurm_client.sinfo("--Node", "--all", "--format=%N"))
        in_prometheus = trial.prometheus.by("node", "count by (node) (deepops_slurm_node_state)")
        return set(answer.output.split()), set(in_prometheus)

    in_slurm, in_prometheus = wait_until(read_nodes, trial.patience, POLL_INTERVAL_S, lambda both: both[0] == both[1])
    wrong = [f"not in the metrics: {names(in_slurm - in_prometheus)}"] if in_slurm - in_prometheus else []
    wrong += [f"in the metrics only: {names(in_prometheus - in_slurm)}"] if in_prometheus - in_slurm else []
    return check(
        NODES, trial.cluster, FAIL if wrong else PASS, len(in_prometheus), len(in_slurm), "nodes", "; ".join(wrong)
    )


def _count(trial: Trial) -> Check:
    """Jobs come and go: Prometheus must show a number that Slurm has reported in the meantime."""
    slurm_counts: list[int] = []

    def query_count() -> int:
        answer = slurm.ask(slurm_client.squeue("%i", "--all", "--array", "--states=RUNNING"))
        slurm_counts.append(len(answer.output.split()))
        in_prometheus = trial.prometheus.query('sum(deepops_slurm_jobs{state="running"}) or vector(0)')
        return int(in_prometheus[0][1])

    in_prometheus = wait_until(query_count, trial.patience, POLL_INTERVAL_S, lambda count: fits(count, slurm_counts))
    return counted(trial.cluster, in_prometheus, slurm_counts)


def fits(in_prometheus: int, slurm_counts: Sequence[int]) -> bool:
    """Whether Slurm has had so many jobs at some moment."""
    return min(slurm_counts) <= in_prometheus <= max(slurm_counts)


def counted(cluster: str, in_prometheus: int, slurm_counts: Sequence[int]) -> Check:
    """The check of Prometheus's number of jobs against all numbers that Slurm reported."""
    least, most = min(slurm_counts), max(slurm_counts)
    expected = str(least) if least == most else f"{least} to {most}"
    text = "" if fits(in_prometheus, slurm_counts) else f"squeue reported {expected}, and Prometheus {in_prometheus}"
    return check(COUNT, cluster, FAIL if text else PASS, in_prometheus, expected, "running jobs", text)
