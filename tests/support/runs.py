"""Runs that no Ansible made, and commands of several runs on a small cluster without nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deepopsctl.cli.interactive import Console
from deepopsctl.cli.passwords import Passwords
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.nodes.workflow import Flow, Report
from deepopsctl.run.events import Change, Totals
from deepopsctl.run.outcome import Failure, RunOutcome, RunSummary, TaskResult, Verdict
from deepopsctl.run.request import RunRequest
from deepopsctl.run.workspace import RunDir

# a cluster of each kind of node
TEXT = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, roles: [controller]}
  - {names: login1, roles: [login]}
  - {names: "cn[1-4]", roles: [compute]}
partitions: [{name: batch, nodes: "cn[1-4]"}]
"""
CLUSTER = parse_spec(TEXT, "cluster.yml")


def run_of(
    *happened: Failure | TaskResult | Change,
    directory: Path = Path("x"),
    command: str = "",
    hosts: Mapping[str, Totals] | None = None,
    code: int = 0,
    stopped: Verdict | None = None,
) -> RunOutcome:
    """A run of a second: what failed in it, what its modules returned, what it changed."""
    summary = RunSummary(
        hosts or {},
        tuple(each for each in happened if isinstance(each, Failure)),
        (),
        (),
        tuple(each for each in happened if isinstance(each, TaskResult)),
        tuple(each for each in happened if isinstance(each, Change)),
    )
    return RunOutcome(RunDir(directory), command, summary, 1.0, code, stopped)


def cluster_dir(path: Path, text: str = TEXT) -> ClusterDir:
    """A cluster directory with this cluster.yml."""
    (path / "cluster.yml").write_text(text, encoding="utf-8")
    return ClusterDir.open(path)


def console(directory: ClusterDir, *, yes: bool = True, confirmed: str = "") -> Console:
    """One that agrees to everything, unless it is to be asked."""
    return Console(directory, Passwords("", None, None), 0, yes, confirmed=confirmed)


def flow(directory: ClusterDir, command: str = "", *nodes: str) -> Flow:
    """A command that works on these nodes."""
    return Flow(directory, RunRequest(directory, ""), console(directory), Report(command, nodes))
