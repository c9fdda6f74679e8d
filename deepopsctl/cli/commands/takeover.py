"""`deepopsctl takeover`: keep what a running Slurm has, so that deploy can go on from there."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import ask_passwords, connection_options, json_option

if TYPE_CHECKING:
    from deepopsctl.run.outcome import RunOutcome
    from deepopsctl.takeover.takeover import Takeover


@click.command()
@click.option("--check", is_flag=True, help="Only show what would be kept; write nothing.")
@connection_options
@json_option
@click.pass_obj
def takeover(settings: Settings, /, *, check: bool, as_json: bool, **given: Any) -> int:
    """Take over nodes on which Slurm runs already: its munge key, user ids, state and accounting are kept.

    Nothing is changed on the nodes. What was found goes into settings.yml, the vault and hardware.yml; the next
    deploy goes on from there, under the running jobs.
    """
    from deepopsctl.cli.output import emit_json, say
    from deepopsctl.cli.views.run import failure_lines
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.takeover.facts import read_found
    from deepopsctl.takeover.takeover import judge, keep

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    with tempfile.TemporaryDirectory(prefix="deepopsctl-takeover-") as folder:
        outcome = _look(settings, directory, Path(folder), len(cluster.nodes), given)
        found = read_found(Path(folder))
    for line in failure_lines(outcome.summary.failures):
        say(line)
    if cluster.controllers[0].name not in found:
        return int(outcome.exit_code) or 1
    result = judge(cluster, found)
    written = () if check else keep(directory, result)
    _show(result, written, directory, check=check)
    if as_json:
        emit_json(result.document(written=not check))
    return int(outcome.exit_code)


def _look(settings: Settings, directory: Any, folder: Path, nodes: int, given: dict[str, Any]) -> RunOutcome:
    from deepopsctl.cli.output import say
    from deepopsctl.cli.views.progress import show_progress
    from deepopsctl.run.command_line import RunRequest
    from deepopsctl.run.runner import look
    from deepopsctl.takeover.takeover import PLAYBOOK

    say(f"takeover: looks at {nodes} nodes, changes nothing there")
    request = RunRequest(
        directory,
        PLAYBOOK,
        component="slurm",
        command="takeover",
        extra_vars={"deepops_takeover_folder": str(folder)},
        user=given["user"] or "",
        content=settings.content,
        verbosity=settings.verbosity if settings.verbosity > 2 else 0,
        **ask_passwords(ssh=given["ask_pass"], become=given["ask_become_pass"]),
    )
    with show_progress(nodes, settings.verbosity) as watch:
        return look(request, watch)


def _show(result: Takeover, written: tuple[str, ...], directory: Any, *, check: bool) -> None:
    from deepopsctl.cli.output import say, table

    for line in table(("kept", "as it is"), result.facts):
        say(line)
    for warning in result.warnings:
        say(click.style("warning: ", fg="yellow") + warning)
    if check:
        say("nothing was written: --check")
    else:
        say(f"written: {', '.join(written) or 'nothing, all of it was there already'}; the nodes are untouched")
        say(f"next: deepopsctl -C {quote(str(directory.path))} deploy")
