"""Findings about the nodes: problems, notes and hints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from deepopsctl.model.cluster import Role
from deepopsctl.model.json_objects import FindingEntry
from deepopsctl.node_programs._shared.node_states import SLURM_USER, is_by_person
from deepopsctl.run.history import RUNNING, PastRun
from deepopsctl.run.outcome import Verdict
from deepopsctl.slurm.state import SlurmNode, SlurmState
from deepopsctl.status.nodes import REMOVED_BY, Answer, Deploy, NodeStatus
from deepopsctl.text.node_sets import fold

# a site's timer makes one every few minutes or hours
LATE = timedelta(days=1)
# once a day
LATE_OF_MONITORING = timedelta(days=2)
# of the message of a failed task (characters)
MAX_FAILURE = 200
# digest of a record of roles/monitoring_node and roles/prometheus whose exporters have no TLS yet
IN_CLEAR = "in clear"
# placeholder in a hint for the nodes that share it
_NODES = "NODES"
_RESUME = f"scontrol update nodename={_NODES} state=resume"


class Severity(StrEnum):
    """Severity of a finding: a problem makes the exit code 1, nodes without an answer make it 4."""

    PROBLEM = "problem"
    SILENT = "no answer"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about some nodes; `nodes` is empty if it is about the cluster."""

    severity: Severity
    nodes: tuple[str, ...]
    message: str
    hint: str = ""

    @property
    def where(self) -> str:
        """The nodes as a node set."""
        return fold(self.nodes) if self.nodes else ""

    def as_object(self) -> FindingEntry:
        """Its entry in `status --json`."""
        return {"kind": str(self.severity), "nodes": list(self.nodes), "message": self.message, "hint": self.hint}


def findings(
    nodes: Sequence[NodeStatus],
    slurm: SlurmState,
    deployed: Collection[str],
    listed: Collection[str] | None = None,
    now: datetime | None = None,
    last_deploy: PastRun | None = None,
    changed: Collection[str] = (),
) -> tuple[Finding, ...]:
    """All findings, the worst first; nodes with the same finding are merged.

    `deployed` are the components on any node, `listed` those of cluster.yml, `changed` the settings that changed since
    the last deploy. `listed` and `last_deploy` are None if there are none.
    """
    merged_nodes: dict[tuple[Severity, str, str], list[str]] = {}
    at = now or datetime.now(UTC)
    of_nodes = (
        one for node in nodes
        for one in (*_of(node, slurm), *_of_components(node, deployed, changed), *_of_backup(node, at))
    )  # fmt: skip
    of_list = () if listed is None else _of_the_list(nodes, deployed, listed)
    of_all = (*_of_the_cluster(nodes, slurm), *_of_the_last_deploy(last_deploy), *of_list)
    under_way = tuple(_under_way(nodes))
    for entry in (*under_way, *(_instead(entry, under_way) for entry in (*of_all, *of_nodes))):
        merged_nodes.setdefault((entry.severity, entry.message, entry.hint), []).extend(entry.nodes)
    order = list(Severity)
    merged = [
        Finding(severity, tuple(names), message, hint.replace(_NODES, fold(names) if names else ""))
        for (severity, message, hint), names in merged_nodes.items()
    ]
    first = {entry.message for entry in under_way}
    return tuple(sorted(merged, key=lambda finding: (finding.message not in first, order.index(finding.severity))))


def _under_way(nodes: Sequence[NodeStatus]) -> Iterator[Finding]:
    """What comes before all else, with its one command: an upgrade or a restore that has not ended, a lost controller.

    A deploy would start a controller that was lost without its queue, and slurmctld would end what runs.
    """
    first = next((node for node in nodes if Role.CONTROLLER in node.node.roles), None)
    if first and first.answer is Answer.OK and first.deploy is Deploy.NEVER and any(map(_serves, nodes)):
        hint = (
            "`deepopsctl restore` brings it back from a backup; without one, `deepopsctl deploy` starts an empty queue"
        )
        yield Finding(Severity.PROBLEM, (first.name,), "it has nothing of a controller, and nodes have its Slurm", hint)
    restored = tuple(node.name for node in nodes if node.restore)
    if restored:
        message = "a restore was begun here and has not ended: partitions may be down, and deploys are refused"
        yield Finding(Severity.PROBLEM, restored, message, "`deepopsctl restore` continues with it")
    for node in nodes:
        if node.upgrade:
            was, new, phase, since = map(node.upgrade.get, ("from", "to", "phase", "since"))
            message = f"an upgrade of Slurm from {was} to {new} is under way since {since} (phase {phase})"
            yield Finding(Severity.NOTE, (), message, f"`deepopsctl upgrade slurm --to {new}` continues with it")


def _serves(node: NodeStatus) -> bool:
    """Whether it is a compute node with Slurm."""
    return node.is_compute and any(part.name == "slurm" and part.deploy is not Deploy.NEVER for part in node.components)


def _instead(entry: Finding, under_way: Sequence[Finding]) -> Finding:
    """The finding without a command that is refused, or would be undone, while something is under way."""
    # a backup of a queue that is not whole would be the newest set
    refused = ("`deepopsctl deploy", "`deepopsctl node resume", "state=resume", "`deepopsctl backup run")
    if not under_way or not any(word in entry.hint for word in refused):
        return entry
    return replace(entry, hint=f"first {under_way[0].hint}")


def _of_the_cluster(nodes: Sequence[NodeStatus], slurm: SlurmState) -> Iterator[Finding]:
    answered = [node for node in nodes if node.answer is Answer.OK]
    if answered and all(node.deploy is Deploy.NEVER for node in answered):
        yield Finding(Severity.NOTE, (), "nothing is deployed yet", "start with `deepopsctl deploy`")
    elif not slurm.controller_up and slurm.error:
        hint = "see `journalctl -u slurmctld` on the controller; `deepopsctl deploy` starts what should run"
        yield Finding(Severity.PROBLEM, (), f"slurmctld does not answer: {slurm.error}", hint)
    yield from _of_controllers(slurm)
    strange = set(slurm.nodes) - {node.name for node in nodes if node.is_compute}
    if strange:
        message = "in Slurm, but no compute node of cluster.yml"
        yield Finding(Severity.NOTE, tuple(sorted(strange)), message, "`deepopsctl deploy` removes it from Slurm")


def _of_the_last_deploy(deploy: PastRun | None) -> Iterator[Finding]:
    """A deploy that did not end well; nodes that did not answer it are listed by what they lack."""
    if deploy is None or deploy.state in (Verdict.OK, Verdict.UNREACHABLE, RUNNING):
        return
    message = f"the last deploy ({deploy.run_dir.id}) did not end well: {deploy.state}"
    failure = next((failure for failure in deploy.failures if not failure.unreachable), None)
    if failure:
        where = f" on {failure.host}" if failure.host else ""
        message += f"{where}: {' '.join(failure.message.split())[:MAX_FAILURE]}"
    hint = f"`deepopsctl runs show {deploy.run_dir.id}` has the details; `deepopsctl deploy` continues"
    yield Finding(Severity.PROBLEM, (), message, hint)


def _of_controllers(slurm: SlurmState) -> Iterator[Finding]:
    """Of several controllers: those that could not take over, and a first one that is not in control."""
    if len(slurm.controllers) < 2 or not slurm.controller_up:
        return
    down = tuple(name for name, up in slurm.controllers.items() if not up)
    if down:
        message = "its slurmctld does not answer: it can't take over"
        hint = "see `journalctl -u slurmctld -u deepops-slurm-guard` there; `systemctl start slurmctld`"
        yield Finding(Severity.PROBLEM, down, message, hint)
    first = next(iter(slurm.controllers))
    if slurm.in_control not in ("", first):
        message = f"{slurm.in_control} is in control of Slurm, not {first}"
        yield Finding(Severity.NOTE, (), message, f"control returns when slurmctld starts on {first}")


def _of_the_list(nodes: Sequence[NodeStatus], deployed: Collection[str], listed: Collection[str]) -> Iterator[Finding]:
    """Components that cluster.yml lists and no node has, and vice versa."""
    if not deployed:
        return
    parts = dict.fromkeys(part.name for node in nodes for part in node.components if part.deploy is not Deploy.LEFT)
    for name in parts:
        if name in listed and name not in deployed:
            message = f"{name} is listed in `components:`, but not deployed yet"
            yield Finding(Severity.NOTE, (), message, f"`deepopsctl deploy {name}`")
        elif name in deployed and name not in listed:
            message = f"{name} is deployed, but `components:` of cluster.yml does not list it"
            yield Finding(Severity.NOTE, (), message, "add it there, so that `deepopsctl deploy` keeps it up to date")


def _of(node: NodeStatus, slurm: SlurmState) -> Iterable[Finding]:
    here = (node.name,)
    if node.answer is Answer.NONE:
        held = f"; Slurm has it as {node.state}" if node.state else ""
        yield Finding(Severity.SILENT, here, f"{node.message}{held}", node.hint)
        return
    yield from (Finding(Severity.PROBLEM, here, message, hint) for message, hint in node.full)
    if node.answer is Answer.FAILED:
        yield Finding(Severity.PROBLEM, here, node.message, node.hint)
    if node.is_compute:
        yield from _of_slurm(node, slurm)


def _of_components(node: NodeStatus, deployed: Collection[str], changed: Collection[str]) -> Iterator[Finding]:
    """Manual changes by component; outdated components in one finding, because one edit may concern several."""
    here = (node.name,)
    for part in node.components:
        for what, why in part.left_out:
            yield Finding(
                Severity.NOTE, here, f"{what} is left out: {why}", f"`deepopsctl deploy {part.name}` tries it again"
            )
        if part.deploy is Deploy.DRIFTED:
            yield Finding(
                Severity.PROBLEM,
                here,
                f"{part.name} drifted: {'; '.join(part.differences)}",
                f"`deepopsctl deploy {part.name}` corrects it; with --check --diff it only shows the changes",
            )
        elif part.deploy is Deploy.LEFT:
            yield Finding(
                Severity.NOTE, here, f"{part.name} is still there, but no longer wanted", REMOVED_BY[part.name]
            )
        elif part.deploy is Deploy.NEVER and part.name in deployed and node.deploy is not Deploy.NEVER:
            yield Finding(
                Severity.NOTE, here, f"{part.name} is not deployed here yet", f"`deepopsctl deploy {part.name}`"
            )
    # what the exporters wait for is not a change of the desired state
    clear = [part.name for part in node.components if part.deploy is Deploy.BEHIND and IN_CLEAR in part.digests]
    for name in clear:
        message = f"{name}: exporters without TLS until the monitoring host was deployed together with this node"
        yield Finding(Severity.NOTE, here, message, f"`deepopsctl deploy {name}`")
    if behind := [part.name for part in node.components if part.deploy is Deploy.BEHIND and part.name not in clear]:
        what = ", ".join(changed) or "the desired state"
        names = ", ".join(behind)
        yield Finding(
            Severity.NOTE, here, f"{names} behind: {what} changed since the last deploy", "`deepopsctl deploy`"
        )


def _of_backup(node: NodeStatus, now: datetime) -> Iterator[Finding]:
    """A backup that failed, or is late."""
    for last, what, unit, late in (
        (node.backup, "backup", "deepops-backup", LATE),
        (node.backup_of_monitoring, "backup of monitoring", "deepops-backup-monitoring", LATE_OF_MONITORING),
    ):
        hint = f"see `journalctl -u {unit}` there, then `deepopsctl backup run`"
        if last is None:
            continue
        if last.failure:
            yield Finding(Severity.PROBLEM, (node.name,), f"the last {what} failed: {last.failure}", hint)
        elif last.made is None:
            yield Finding(Severity.NOTE, (node.name,), f"no {what} yet", "`deepopsctl backup run` makes one")
        elif now - last.made > late:
            days = (now - last.made).days
            age = f"{days} days" if days > 1 else "more than a day"
            yield Finding(Severity.PROBLEM, (node.name,), f"the last {what} is {age} old", hint)


def _of_slurm(node: NodeStatus, slurm: SlurmState) -> Iterator[Finding]:
    here, known = (node.name,), node.slurm
    if known is None:
        if slurm.controller_up and node.deploy is Deploy.NEVER:
            yield Finding(Severity.NOTE, here, "not deployed yet", "`deepopsctl deploy`")
        elif slurm.controller_up:
            yield Finding(Severity.PROBLEM, here, "Slurm does not know it", "`deepopsctl deploy` adds it to Slurm")
        return
    who = "Slurm" if known.reason_user == SLURM_USER else known.reason_user or "an unknown user"
    since = f" since {known.reason_since.replace('T', ' ')}" if known.reason_since else ""
    reason = known.reason or "no reason given"
    if known.is_faulty:
        yield Finding(Severity.PROBLEM, here, f"{known.word}{since}: {reason}", _fault_hint(known))
    elif known.is_drained_by_deepopsctl:
        hint = f"`deepopsctl node resume {_NODES}` resumes it"
        yield Finding(Severity.NOTE, here, f"{known.word}{since}: {reason}", hint)
    elif known.is_drained:
        severity = Severity.PROBLEM if who == "Slurm" else Severity.NOTE
        hint = f"fix it, then: {_RESUME}" if who == "Slurm" else ""
        yield Finding(severity, here, f"{known.word} by {who}{since}: {reason}", hint)


def _fault_hint(known: SlurmNode) -> str:
    """How to repair a faulty node."""
    if "unexpectedly rebooted" in known.reason:
        return "`deepopsctl deploy` verifies it and returns it to service"
    if is_by_person(known.reason_user) and "DOWN" in known.flags:
        return f"a user set it down; after the repair: {_RESUME}"
    return "see `journalctl -u slurmd` there; `deepopsctl deploy` starts what should run"
