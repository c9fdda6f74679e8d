"""`deepopsctl runs`: show earlier runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import complete_runs, json_option

if TYPE_CHECKING:
    from deepopsctl.model.json_objects import RunsListObject
    from deepopsctl.run.history import PastRun


@click.group()
def runs() -> None:
    """Show earlier runs."""


@runs.command("list")
@json_option
@click.pass_obj
def list_runs(settings: Settings, /, *, as_json: bool) -> None:
    """List the stored runs, newest first."""
    from deepopsctl.cli.output import emit_json, info, show, table
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.model.json_objects import SCHEMA
    from deepopsctl.run.history import past_runs
    from deepopsctl.run.workspace import Workspace

    history = past_runs(Workspace(ClusterDir.open(settings.directory).runs))
    entries = [run.as_object() for run in history]
    if as_json:
        document: RunsListObject = {"schema": SCHEMA, "command": "runs list", "ok": True, "runs": entries}
        emit_json(document)
        return
    if not history:
        info("there are no runs yet")
        return
    names = ["run", "state", "elapsed_s", "nodes", "changed", "failed", "unreachable"]
    # where there are several
    names += ["user"] if len({entry.get("user") for entry in entries}) > 1 else []
    rows = [["" if entry.get(name) is None else str(entry.get(name)) for name in names] for entry in entries]
    for line in table(("run", "state", "seconds", *names[3:6], "lost", *names[7:]), rows, right=range(2, 7)):
        show(line)


@runs.command("show")
@click.argument("run", default="", shell_complete=complete_runs, metavar="[RUN]")
@json_option
@click.pass_obj
def show_run(settings: Settings, /, run: str, *, as_json: bool) -> None:
    """Show one run: RUN is its id or the beginning of it.  [default: the last]"""
    from deepopsctl.cli.output import emit_json, pasteable, show
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.run.history import past_run
    from deepopsctl.run.workspace import Workspace

    past = past_run(Workspace(ClusterDir.open(settings.directory).runs).find(run))
    if as_json:
        emit_json(past.details())
        return
    for line in _details(past):
        show(pasteable(line))


def _details(run: PastRun) -> Iterator[str]:
    from deepopsctl.cli.views.checks import check_lines
    from deepopsctl.cli.views.run import failure_lines, left_out_lines, node_table, shown_path
    from deepopsctl.text.answers import mappings, texts
    from deepopsctl.validation.result import REPORT_FILE
    from deepopsctl.validation.stored import past_facts

    request = run.request
    elapsed = f" after {run.elapsed_s:.1f} s" if run.elapsed_s is not None else ""
    yield click.style(run.run_dir.id, bold=True) + f": {run.state}{elapsed}"
    yield " ".join([str(request.get("command", "?")), *texts(request.get("playbooks"))])
    options = [name if request[name] is True else f"{name} {request[name]}" for name in _OPTIONS if request.get(name)]
    if options:
        yield f"options: {', '.join(options)}"
    yield f"started {request.get('started', '?')} by {request.get('user', '?')} on {request.get('host', '?')}"
    yield ""
    yield from node_table(run.hosts.items())
    slowest = mappings(run.summary.get("slowest"))
    yield from _section("slowest", [f"{e['elapsed_s']:>8} s  {e['task']}" for e in slowest])
    yield from _section("warnings", texts(run.summary.get("warnings")))
    yield from left_out_lines(run.left_out)
    yield from failure_lines(run.failures)
    facts = past_facts(run)
    if facts:
        yield from check_lines(facts)
        report = run.run_dir.path / REPORT_FILE
        if report.is_file():
            yield f"report: {shown_path(report)}"
    yield f"log: {shown_path(run.run_dir.log)}"


_OPTIONS = ("limit", "tags", "check", "full")


def _section(name: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{name}:"
        yield from (f"  {line}" for line in lines)
