"""A user's job on every node that has room, held until it is seen in Prometheus; and Slurm's figures beside those."""

from __future__ import annotations

import getpass
import time
from typing import Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import command, placement
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.picture import Picture
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke.session import LOOK_S, Running, Session

from .telling import FAIL, PASS, SKIP, Verdict, check, names, one_line, skip, until
from .web import Prometheus

JOB, NODES, COUNT, SLURM = "job-metrics", "slurm-nodes-agree", "slurm-jobs-agree", "slurm-metrics"


class Held(NamedTuple):
    """A job that waits to be let go, and the nodes it is on."""

    what: str
    nodes: Sequence[str]
    running: Running


class Trial(NamedTuple):
    """What is tried, for whom, and how long it may take to be seen (seconds).

    `measured`: jobs have control groups, without which nobody knows what each uses.
    """

    prometheus: Prometheus
    session: Session
    cluster: str
    compute: Sequence[str]
    patience: float
    measured: bool = True


def hold(trial: Trial, seen: Picture) -> Tuple[List[Held], List[Verdict]]:
    """Start a job on every node that has room; a skipped check for each of the others."""
    known = [name for name in trial.compute if name in seen.nodes]
    checks = [skip(JOB, name, "Slurm does not know this node") for name in trial.compute if name not in known]
    obstacles = seen.obstacles(known)
    checks += [skip(JOB, name, reason + ": no job was sent") for name, reason in obstacles.items()]
    ready = [name for name in known if name not in obstacles]
    places = placement.place(ready, seen.nodes, seen.partitions)
    jobs = [
        # ends with its input: nothing is left where whoever started this is gone
        Held("job{}".format(number), place.nodes, trial.session.start("job{}".format(number), place.options(), ["cat"]))
        for number, place in enumerate(places)
    ]
    return jobs, checks


def identified(trial: Trial, held: Held) -> Tuple[str, str, str]:
    """The job's id and account, once it runs; or why it does not."""
    name = trial.session.name(held.what)
    end = time.monotonic() + trial.session.queue_timeout
    while True:
        answer = command.run(
            ["squeue", "--noheader", "--user=" + trial.session.user, "--name=" + name, "--format=%i|%a|%T|%r"]
        )
        number, account, state, reason = ([*answer.out.strip().split("\n")[0].split("|"), "", "", "", ""])[:4]
        if state == "RUNNING":
            return number, account, ""
        code = held.running.ended(0)
        if code is not None:
            return "", "", one_line(held.running.text("err")) or "exit code {}".format(code)
        if time.monotonic() > end:
            text = "the job did not start in time; Slurm's reason: {}".format(reason or "none given")
            return "", "", text if answer.rc == 0 else one_line(answer.said)
        time.sleep(LOOK_S / 6)


def shown(trial: Trial, held: Held) -> List[Verdict]:
    """The job in Prometheus, with its user and account, from each of its nodes."""
    number, account, why = identified(trial, held)
    if not number:
        busy = why.startswith("the job did not start")
        return [check(JOB, node, SKIP if busy else FAIL, "no job", "a job", message=why) for node in held.nodes]
    wanted, user = set(held.nodes), getpass.getuser()
    started = time.monotonic()

    def look() -> Dict[str, Mapping[str, str]]:
        return {labels.get("node", ""): labels for labels, _value in trial.prometheus.query(_question(trial, number))}

    found = until(trial.patience, look, lambda seen: wanted <= set(seen))
    took = time.monotonic() - started
    return [_one(trial, node, found.get(node), number, {"user": user, "account": account}, took) for node in held.nodes]


def _question(trial: Trial, number: str) -> str:
    whose = 'deepops_job_info{{jobid="{}"}}'.format(number)
    return whose + " and on (node, jobid) deepops_job_cpus" if trial.measured else whose


def _one(
    trial: Trial, node: str, labels: "Mapping[str, str] | None", number: str, wanted: Mapping[str, str], took: float
) -> Verdict:
    if labels is None:
        text = "job {} ran there for {:.0f} s and is not in the metrics".format(number, took)
        return check(JOB, node, FAIL, "not seen", "seen", message=text)
    wrong = [
        "{} {} instead of {}".format(key, labels.get(key) or "none", value)
        for key, value in wanted.items()
        if labels.get(key) != value
    ]
    well = "with its user and account"
    well += "" if trial.measured else "; what it uses nobody knows: jobs have no control groups here"
    text = "job {} has {}".format(number, " and ".join(wrong)) if wrong else well
    return check(JOB, node, FAIL if wrong else PASS, "{:.0f}".format(took), "{:g}".format(trial.patience), "s", text)


def agree(trial: Trial) -> List[Verdict]:
    """Nodes and running jobs, as Prometheus has them and as Slurm itself says."""
    up = trial.prometheus.query("deepops_slurm_up")
    if not any(value == 1 for _labels, value in up):
        text = "deepops-slurmmetrics {}".format("says that Slurm does not answer" if up else "hands out nothing")
        return [check(SLURM, trial.cluster, FAIL, "down" if up else "nothing", "up", message=text),
                skip(NODES, trial.cluster, text), skip(COUNT, trial.cluster, text)]  # fmt: skip
    return [check(SLURM, trial.cluster, PASS, "up", "up"), _nodes(trial), _count(trial)]


def _nodes(trial: Trial) -> Verdict:
    def look() -> Tuple[Set[str], Set[str]]:
        answer = command.run(["sinfo", "--noheader", "--Node", "--all", "--format=%N"])
        shown = trial.prometheus.by("node", "count by (node) (deepops_slurm_node_state)")
        return set(answer.out.split()), set(shown)

    slurm, shown = until(trial.patience, look, lambda both: both[0] == both[1], LOOK_S)
    wrong = ["not in the metrics: {}".format(names(slurm - shown))] if slurm - shown else []
    wrong += ["in the metrics only: {}".format(names(shown - slurm))] if shown - slurm else []
    return check(NODES, trial.cluster, FAIL if wrong else PASS, len(shown), len(slurm), "nodes", "; ".join(wrong))


def _count(trial: Trial) -> Verdict:
    """Jobs come and go: what Prometheus shows must be a number that Slurm has said while we looked."""
    said: List[int] = []

    def look() -> int:
        answer = command.run(["squeue", "--noheader", "--all", "--array", "--states=RUNNING", "--format=%i"])
        said.append(len(answer.out.split()))
        shown = trial.prometheus.query('sum(deepops_slurm_jobs{state="running"}) or vector(0)')
        return int(shown[0][1])

    shown = until(trial.patience, look, lambda count: fits(count, said), LOOK_S)
    return counted(trial.cluster, shown, said)


def fits(shown: int, said: Sequence[int]) -> bool:
    """Whether Slurm has had so many jobs at some moment."""
    return min(said) <= shown <= max(said)


def counted(cluster: str, shown: int, said: Sequence[int]) -> Verdict:
    """What Prometheus shows, judged by all that Slurm has said."""
    least, most = min(said), max(said)
    expected = str(least) if least == most else "{} to {}".format(least, most)
    text = "" if fits(shown, said) else "squeue has said {}, and Prometheus {}".format(expected, shown)
    return check(COUNT, cluster, FAIL if text else PASS, shown, expected, "running jobs", text)
