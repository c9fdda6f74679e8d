"""`node remove`: machines leave the cluster; no job is lost, nothing of them stays behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepopsctl.clusterdir import ClusterDir
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.files import write_atomic
from deepopsctl.invocation import RunRequest
from deepopsctl.lock import cluster_lock
from deepopsctl.membership.flow import (
    Flow,
    Glance,
    Operator,
    Report,
    StoppedError,
    bystanders,
    glance,
    must_be_well,
)
from deepopsctl.membership.hostpins import forget
from deepopsctl.membership.newcomers import machines_of
from deepopsctl.membership.specfile import SpecFile
from deepopsctl.model import Cluster, Node, Role
from deepopsctl.nodelist import fold, fold_in_order
from deepopsctl.slurmstate import SlurmJob
from deepopsctl.specedit import remove_nodes

# what makes a node more than its own: the data and the daemons of a whole cluster are there
ROOTED = (Role.CONTROLLER, Role.DBD, Role.NFS_SERVER, Role.MONITORING)
SHOWN_JOBS = 8


@dataclass(frozen=True, slots=True)
class Leave:
    """What a person asked for: seconds to wait for jobs, and whether to cancel them instead."""

    names: str
    timeout_s: int
    force: bool = False


def remove(directory: ClusterDir, leave: Leave, base: RunRequest, operator: Operator) -> Report:
    """Do it all; until the nodes are empty nothing is removed."""
    cluster = directory.cluster()
    nodes = chosen(cluster, leave.names)
    report = Report("node remove", tuple(node.name for node in nodes))
    with cluster_lock(directory.runs, "deepopsctl node remove"):
        try:
            _Remove(Flow(directory, base, operator, report), leave, cluster, nodes).run()
        except StoppedError as stop:
            report.stopped = stop
    return report


def chosen(cluster: Cluster, text: str) -> tuple[Node, ...]:
    """The nodes that are meant: of this cluster, and none that the cluster stands on."""
    names = [name for name, _ in machines_of(text.partition("=")[0])]
    known = {node.name: node for node in cluster.nodes}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError.single(
            "NAMES", f"the cluster has no node {fold_in_order(unknown)}", f"its nodes: {fold(known)}"
        )
    rooted = [name for name in names if any(role in known[name].roles for role in ROOTED)]
    if rooted:
        roles = ", ".join(role.value for role in ROOTED if role in known[rooted[0]].roles)
        raise InputError.single(
            "NAMES",
            f"{rooted[0]} is {roles}: this command is for compute and login nodes",
            "move that role to another machine in cluster.yml first",
        )
    return tuple(known[name] for name in names)


def empty_nodes(flow: Flow, cluster: Cluster, names: Sequence[str], verb: str, leave: Leave) -> None:
    """Drain nodes and wait for their jobs; stop where some are left at the deadline."""
    first = cluster.controllers[0]
    how = {"membership_reason": f"node {verb}", "membership_timeout": leave.timeout_s, "membership_force": leave.force}
    outcome = flow.membership(cluster, "vacate", names, **how)
    back = f"`deepopsctl node resume {fold(names)}` puts it back in service"
    must_be_well(outcome, (first,), f"{fold(names)} may be drained; nothing else was changed", back)
    left = glance(outcome).slurm.jobs_on(names)
    if left:
        raise StoppedError(
            f"nothing was {verb}d: after {leave.timeout_s} s {job_words(left)} still there; "
            f"{fold(names)} stays drained, so that no new job starts",
            f"wait and run the command again, or cancel the jobs with --force; {back}",
            ExitCode.TIMEOUT,
        )


def job_words(jobs: Sequence[SlurmJob]) -> str:
    """`job 17 (alice) and 18 (bob) are`."""
    words = [f"{job.id} ({job.user})" for job in jobs[:SHOWN_JOBS]]
    more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
    return f"job{'s' * (len(jobs) > 1)} {', '.join(words)}{more} {'is' if len(jobs) == 1 else 'are'}"


def show_jobs(operator: Operator, seen: Glance, names: Sequence[str], leave: Leave) -> None:
    """Which jobs are concerned, and what happens to them."""
    jobs = seen.slurm.jobs_on(names)
    for job in jobs[:SHOWN_JOBS]:
        operator.say(f"  job {job.id} of {job.user} ({job.name}) {job.state.lower()} on {fold(job.nodes)}")
    if len(jobs) > SHOWN_JOBS:
        operator.say(f"  and {len(jobs) - SHOWN_JOBS} more")
    if jobs:
        end = "they are CANCELLED (--force)" if leave.force else f"waits up to {leave.timeout_s} s for their end"
        operator.say(f"{len(jobs)} job{'s' * (len(jobs) > 1)} on {fold(names)}: {end}")
    else:
        operator.say(f"no job on {fold(names)}")


@dataclass(slots=True)
class _Remove:
    flow: Flow
    leave: Leave
    cluster: Cluster
    nodes: tuple[Node, ...]

    def run(self) -> None:
        flow, cluster, names = self.flow, self.cluster, [node.name for node in self.nodes]
        spec = SpecFile.open(flow.directory)
        # every fault of the edit shows before anything is touched
        text = remove_nodes(spec.text, names)
        compute = [node.name for node in self.nodes if Role.COMPUTE in node.roles]
        seen = flow.look(cluster)
        if compute:
            show_jobs(flow.operator, seen, compute, self.leave)
        flow.operator.confirm(f"remove {fold(names)} from {cluster.name}?")
        if compute:
            flow.operator.say(f"drain {fold(compute)}")
            empty_nodes(flow, cluster, compute, "remove", self.leave)
        flow.operator.say(f"stop the cluster's services on {fold(names)}")
        self._retire(names)
        flow.operator.say(f"take {fold(names)} out of the configuration")
        self._forget(spec, text, names)
        flow.report.closing = f"{fold(names)} left the cluster"
        others = bystanders(cluster, names)
        if others and any(node.address for node in self.nodes):
            flow.report.closing += f"; /etc/hosts of {fold(others)} names it until the next `deepopsctl deploy`"

    def _retire(self, names: list[str]) -> None:
        """Stop the services; a machine that does not answer may be gone for good."""
        outcome = self.flow.run(self.cluster, ("operate/retire",), names, membership_nodes=names)
        lost = outcome.summary.unreachable
        rest = [node for node in self.nodes if node.name not in lost]
        back = f"run the command again; `deepopsctl node resume {fold(names)}` puts it back in service"
        must_be_well(outcome, rest, f"{fold(names)} stays drained and in cluster.yml", back)
        if lost:
            self.flow.report.warnings.append(
                f"{fold(lost)} did not answer: its slurmd and the munge key are still there; erase it before it is used"
            )

    def _forget(self, spec: SpecFile, text: str, names: list[str]) -> None:
        """cluster.yml, inventory, hardware.yml, slurm.conf, hosts files of the companions, host keys."""
        hardware = self.flow.directory.hardware
        stored = hardware.read_text(encoding="utf-8") if hardware.exists() else ""
        after = spec.write(text)
        outcome = self.flow.deploy(after, ())
        try:
            must_be_well(
                outcome,
                after.controllers[:1],
                f"cluster.yml is as it was; {fold(names)} stays drained, its services are stopped",
                "mend it and run the command again",
            )
        except StoppedError:
            spec.put_back()
            if stored:
                write_atomic(hardware, stored)
            raise
        forget(self.flow.directory, self.cluster, names)
        reached = self.flow.operator.set_up_ssh(after, (), frozenset())
        self.flow.report.warnings += reached.warnings
