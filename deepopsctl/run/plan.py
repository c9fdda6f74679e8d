"""A plan from a finished check run: what would change where, how it takes effect, and the affected running jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deepopsctl.errors import ExitCode
from deepopsctl.model.json_objects import PlanObject
from deepopsctl.run.events import Change
from deepopsctl.run.outcome import RunOutcome, RunSummary, SameNodes, Verdict
from deepopsctl.slurm.state import SlurmJob, SlurmState, jobs_sentence, state_in
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold

COMMAND = "plan"
PLAN_FILE = "plan.json"
RESTARTS = frozenset({"restart", "stop"})
# a change of this unit affects all jobs
SLURMCTLD = "slurmctld.service"


@dataclass(frozen=True, slots=True)
class Blocked:
    """A reason why deploy would refuse or fail."""

    host: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts on which a component changes the same things; `changes` has each thing once, `variants` all its diffs."""

    hosts: tuple[str, ...]
    component: str
    changes: tuple[Change, ...]
    variants: Mapping[tuple[str, str, str], tuple[str, ...]]

    @property
    def names(self) -> str:
        """The hosts as a node set."""
        return fold(host for host in self.hosts if host)

    @property
    def where(self) -> str:
        """The same in words; changes without a node are in the cluster directory."""
        return f"on {self.names}" if any(self.hosts) else "in the cluster directory"


@dataclass(frozen=True, slots=True)
class Plan:
    """What deploy would change."""

    outcome: RunOutcome
    changes: tuple[Change, ...]
    blocked: tuple[Blocked, ...]
    slurm: SlurmState

    @property
    def unknown(self) -> tuple[str, ...]:
        """Nodes that did not answer: their changes are unknown, and those of nodes that they were checked for."""
        silent = self.outcome.summary.unreachable
        others = (name for name, checked in self.outcome.same.like.items() if checked in silent)
        return tuple(dict.fromkeys((*silent, *others)))

    @property
    def same_as(self) -> dict[str, list[str]]:
        """Nodes that were not checked, by the one that was in their place."""
        nodes: dict[str, list[str]] = {}
        for name, checked in self.outcome.same.like.items():
            nodes.setdefault(checked, []).append(name)
        return nodes

    @property
    def hosts(self) -> tuple[str, ...]:
        """Nodes with changes."""
        return tuple(dict.fromkeys(change.host for change in self.changes if change.host))

    @property
    def restarts(self) -> int:
        """Number of service restarts, summed over the nodes."""
        return sum(change.kind == "unit" and change.action in RESTARTS for change in self.changes)

    @property
    def jobs(self) -> tuple[SlurmJob, ...]:
        """Running jobs on nodes that change, or all jobs if slurmctld changes."""
        controller = any(change.kind == "unit" and change.name == SLURMCTLD for change in self.changes)
        return self.slurm.jobs_on(self.slurm.nodes if controller else self.hosts)

    @property
    def jobs_known(self) -> bool:
        """Whether Slurm answered, or is not installed."""
        return self.slurm.controller_up or not self.slurm.installed

    @property
    def groups(self) -> tuple[Group, ...]:
        """Hosts with the same changes together, in the order they came up in."""
        return tuple(group(self.changes))

    @property
    def exit_code(self) -> ExitCode:
        """0 also where something changes; 1 where deploy would refuse or fail, 4 where only nodes did not answer."""
        if self.outcome.exit_code is ExitCode.OK and self.blocked:
            return ExitCode.FAILED
        return self.outcome.exit_code

    @property
    def verdict(self) -> str:
        """Summary in one line."""
        text = self._verdict()
        if self.unknown:
            text += f"; {amount(len(self.unknown), 'node')} unknown: {fold(self.unknown)}"
        return text

    def _verdict(self) -> str:
        if self.outcome.stopped:
            return "stopped before all nodes were checked"
        if self.blocked:
            return "blocked: " + "; ".join(entry.message.partition("\n")[0] for entry in self.blocked[:3])
        if not self.changes:
            return "nothing to do" if len(self.unknown) < len(self.outcome.summary.hosts) else "no node answered"
        where = f" on {amount(len(self.hosts), 'node')}" if self.hosts else ""
        parts = [f"{amount(len(self.changes), 'change')}{where}"]
        if self.restarts:
            parts.append(f"{amount(self.restarts, 'service')} restart{'s' if self.restarts == 1 else ''}")
        parts.append("no job is killed" if self.jobs_known else "jobs unknown: slurmctld does not answer")
        return "; ".join(parts)

    @property
    def jobs_line(self) -> str:
        """`3 jobs on gpu[01-02]; none is killed`; empty where none runs there."""
        sentence = jobs_sentence(self.jobs, self.slurm.nodes)
        return f"{sentence}; none is killed" if sentence and not self.blocked else sentence

    def document(self) -> PlanObject:
        """The JSON object: deploy's, with the plan."""
        return {
            **self.outcome.as_object(),
            "ok": self.exit_code is ExitCode.OK,
            "plan": self.verdict,
            "blocked": [{"host": b.host, "message": b.message, "hint": b.hint} for b in self.blocked],
            "unknown": list(self.unknown),
            "changes": [change.as_object() for change in self.changes],
            "restarts": self.restarts,
            "same_as": {name: fold(names) for name, names in self.same_as.items()},
            "jobs": [
                {"id": job.id, "user": job.user, "state": job.state, "nodes": list(job.nodes)} for job in self.jobs
            ],
        }


def examine(outcome: RunOutcome) -> Plan:
    """The plan of a finished check run."""
    summary = outcome.summary
    changes = (*summary.changes, *_changes_of_others(summary.changes, outcome.same))
    early = (Blocked(fold(each.nodes), each.message, each.hint) for each in outcome.same.blocked)
    blocked = tuple(dict.fromkeys((*early, *_blocked(summary))))
    return Plan(outcome, changes, blocked, state_in(result.data for result in summary.results))


def _changes_of_others(changes: Iterable[Change], same: SameNodes) -> Iterable[Change]:
    """What changes on nodes that another one was checked for; the difference of a file is in that one's change."""
    by_host: dict[str, list[Change]] = {}
    for change in changes:
        by_host.setdefault(change.host, []).append(change)
    for name, checked in same.like.items():
        for change in by_host.get(checked, ()):
            other = replace(change, host=name, diff="", same_as=checked)
            is_name = change.kind == "hostname"
            yield replace(other, name=name, detail=f"was {same.hostnames[name]}") if is_name else other


def save(plan: Plan) -> None:
    """Save plan.json next to the run's log, and the verdict in the run's summary."""
    run_dir, outcome = plan.outcome.run_dir, plan.outcome
    verdict = Verdict.FAILED if outcome.ok and plan.blocked else outcome.verdict
    run_dir.write(run_dir.path / PLAN_FILE, plan.document())
    run_dir.write(
        run_dir.summary, {**outcome.as_object(), "ok": plan.exit_code is ExitCode.OK, "verdict": str(verdict)}
    )


def group(changes: Iterable[Change]) -> list[Group]:
    """Changes by component and by sets of hosts that have the same ones."""
    by_host: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        by_host.setdefault((change.component, change.host), []).append(change)
    hosts_by_changes: dict[tuple[str, frozenset[tuple[str, ...]]], list[str]] = {}
    for (component, host), mine in by_host.items():
        hosts_by_changes.setdefault((component, frozenset(_shown(change) for change in mine)), []).append(host)
    groups = []
    for (component, _), hosts in hosts_by_changes.items():
        first = by_host[component, hosts[0]]
        everywhere = [change for host in hosts for change in by_host[component, host]]
        groups.append(Group(tuple(hosts), component, tuple(first), _variants(everywhere)))
    return groups


def _shown(change: Change) -> tuple[str, ...]:
    # the hostname is each node's own
    return (change.kind, "" if change.kind == "hostname" else change.name, change.action, change.policy)


def _variants(changes: Sequence[Change]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    variants: dict[tuple[str, str, str], list[str]] = {}
    seen: set[tuple[tuple[str, str, str], str]] = set()
    for change in (change for change in changes if not change.same_as):
        # files that differ only in the node's own name count as equal
        equivalents = {(change.what, change.diff), (change.what, change.diff.replace(change.host or "\0", "\0"))}
        if not equivalents & seen:
            variants.setdefault(change.what, []).append(change.diff)
        seen |= equivalents
    return {what: tuple(diffs) for what, diffs in variants.items()}


def _blocked(summary: RunSummary) -> Iterable[Blocked]:
    for result in summary.results:
        for entry in result.entries("blocked"):
            yield Blocked(result.host, str(entry.get("message") or ""), str(entry.get("hint") or ""))
    for failure in summary.failures:
        if not failure.unreachable:
            yield Blocked(failure.host, failure.message, failure.hint)
