"""The status as text: equal nodes in one row, then findings, versions, the last runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add

from deepopsctl.run.history import PastRun
from deepopsctl.status.cluster import ClusterStatus, LastRuns
from deepopsctl.status.findings import Finding, Severity
from deepopsctl.status.nodes import Amount, Answer, NodeStatus
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold, shorten

HEADER = ("nodes", "roles", "state", "jobs", "cpus", "memory GiB", "gpus", "deploy")
RIGHT = (3, 4, 5, 6)
COMPONENTS_HEADER = ("component", "deploy", "nodes")
NAMES_WIDTH = 32
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Line:
    """A line; `severity` is the word that it begins with, for its colour."""

    text: str
    severity: Severity | None = None


def head(status: ClusterStatus) -> str:
    """`hpc: 3 nodes, Slurm 24.11.5, 2 jobs run, 5 wait`."""
    slurm, count = status.slurm, len(status.nodes)
    parts = [amount(count, "node")]
    if slurm.controller_up:
        running = sum(job.is_on_nodes for job in slurm.jobs)
        if len(slurm.controllers) > 1:
            parts.append(f"{slurm.in_control or 'no controller'} in control")
        parts += [
            f"Slurm {slurm.versions.get('slurmctld', '?')}",
            amount(running, "job runs", "jobs run"),
            amount(len(slurm.pending), "waits", "wait"),
        ]
    elif slurm.installed:
        parts.append("slurmctld does not answer")
    else:
        parts.append("Slurm could not be asked" if _controller_is_silent(status) else "no Slurm yet")
    return f"{status.cluster}: {', '.join(parts)}"


def node_rows(nodes: Sequence[NodeStatus]) -> list[tuple[str, ...]]:
    """Rows under HEADER, equal nodes folded, in the order of cluster.yml."""
    groups: dict[tuple[str, ...], list[NodeStatus]] = {}
    for node in nodes:
        last = str(node.deploy) if node.answer is Answer.OK else str(node.answer)
        groups.setdefault(("+".join(node.roles), node.state or "-", last), []).append(node)
    return [
        (
            shorten(fold(node.name for node in members), NAMES_WIDTH),
            roles,
            state,
            str(len({job.id for node in members for job in node.jobs})) if members[0].slurm else "-",
            _share(reduce(add, (node.cpus for node in members))),
            _share(reduce(add, (node.memory_mb for node in members)), 1024),
            _share(reduce(add, (node.gpus for node in members))),
            last,
        )
        for (roles, state, last), members in groups.items()
    ]


def component_rows(status: ClusterStatus) -> list[tuple[str, ...]]:
    """Rows under COMPONENTS_HEADER: nodes of each component by deploy state."""
    return [
        (name if number == 0 else "", str(deploy), fold(nodes))
        for name, sets in status.components.items()
        for number, (deploy, nodes) in enumerate(sets.items())
    ]


def finding_lines(findings: Sequence[Finding], width: int) -> Iterator[Line]:
    """Every finding with its nodes and what to do."""
    for finding in findings:
        where = f"{shorten(finding.where, NAMES_WIDTH)}: " if finding.nodes else ""
        text = f"{finding.severity}: {where}{finding.message}"
        first, *more = textwrap.wrap(text, width, subsequent_indent=INDENT, break_on_hyphens=False) or [text]
        yield Line(first, finding.severity)
        yield from (Line(line) for line in more)
        if finding.hint:
            yield Line(f"{INDENT}hint: {finding.hint}")


def version_lines(status: ClusterStatus) -> Iterator[str]:
    """`slurm   24.11.5 on ctl1,gpu[01-16]; 22.05.8 on gpu17`; where all nodes agree, only the version."""
    versions = status.versions
    if len(versions.get("slurm", {})) <= 1 and versions.get("slurmctld", {}).keys() == versions.get("slurm", {}).keys():
        # slurmctld runs the installed version
        versions.pop("slurmctld", None)
    for item, sets in versions.items():
        if len(sets) == 1 and item != "slurmctld":
            yield f"{item:<10}{next(iter(sets))}"
        else:
            yield f"{item:<10}" + "; ".join(
                f"{version} on {shorten(fold(names), NAMES_WIDTH)}" for version, names in sets.items()
            )


def last_lines(last: LastRuns, now: datetime) -> Iterator[str]:
    """The last run; the last deploy, upgrade and restore if that was another run; the last validation."""
    yield f"{'last run':<17}{_run(last.run, now) if last.run else 'none yet'}"
    for name, run in (("deploy", last.deploy), ("upgrade", last.upgrade), ("restore", last.restore)):
        if run and last.run and run.run_dir.id != last.run.run_dir.id:
            yield f"{f'last {name}':<17}{_run(run, now)}"
    if last.validation:
        counted = f": {last.checks.sentence()}" if last.checks else ""
        yield f"{'last validation':<17}{_run(last.validation, now)}{counted}"
    else:
        yield f"{'last validation':<17}none yet; run `deepopsctl validate`"


def backup_lines(status: ClusterStatus, now: datetime) -> Iterator[str]:
    """The last good backup of each node that makes some."""
    for node in status.nodes:
        for backup, of in ((node.backup, ""), (node.backup_of_monitoring, "of monitoring ")):
            if backup and backup.made:
                age = _age(backup.made.isoformat(), now)
                yield f"{'last backup':<17}{backup.snapshot} {of}on {node.name}{age}"


def summary_line(status: ClusterStatus) -> str:
    """The last line."""
    counts = {severity: sum(finding.severity is severity for finding in status.findings) for severity in Severity}
    silent = sum(node.answer is Answer.NONE for node in status.nodes)
    parts = []
    if counts[Severity.PROBLEM]:
        parts.append(amount(counts[Severity.PROBLEM], "problem"))
    if silent:
        parts.append(f"{silent} of {amount(len(status.nodes), 'node')} did not answer")
    return ", ".join(parts) or "no problems"


def _run(run: PastRun, now: datetime) -> str:
    elapsed = f" after {run.elapsed_s:.1f} s" if run.elapsed_s is not None else ""
    return f"{run.run_dir.id}: {run.state}{elapsed}{_age(str(run.request.get('started', '')), now)}"


def _age(started: str, now: datetime) -> str:
    """`, 5 min ago`."""
    try:
        seconds = (now - datetime.fromisoformat(started)).total_seconds()
    except (ValueError, TypeError):
        return ""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f", {int(seconds // size)} {unit} ago"
    return ", just now" if seconds < 60 else ", 1 min ago"


def _share(amount: Amount, unit: int = 1) -> str:
    """`3/4`, `-/4` if the use is unknown, `-` without any."""
    if amount.total is None:
        return "-"
    used = "-" if amount.used is None else _number(amount.used, unit)
    return f"{used}/{_number(amount.total, unit)}"


def _number(value: int, unit: int) -> str:
    return str(value) if unit == 1 else f"{value / unit:.0f}"


def _controller_is_silent(status: ClusterStatus) -> bool:
    first = next((node for node in status.nodes if "controller" in node.roles), None)
    return first is not None and first.answer is not Answer.OK
