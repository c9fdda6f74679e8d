"""`deepopsctl takeover`: adopt an existing Slurm installation before the first deploy."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import confirm_option, connection_options, json_option
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.model.json_objects import RunObject
    from deepopsctl.run.outcome import RunOutcome
    from deepopsctl.takeover.takeover import Takeover


@click.command()
@click.option("--check", is_flag=True, help="Show what would be adopted; change nothing.")
@click.option("--finish", is_flag=True, help="Remove a Slurm that was built from source, once nothing uses it.")
@click.option(
    "--undo", is_flag=True, help="Run the Slurm from before with its configuration again; possible until --finish."
)
@confirm_option
@connection_options
@json_option
@click.pass_obj
def takeover(settings: Settings, /, *, check: bool, finish: bool, undo: bool, as_json: bool, **options: Any) -> int:
    """Adopt an existing Slurm installation: keep its munge key, user ids, state and accounting.

    Nothing is changed on the nodes. The results are written to settings.yml, the vault and hardware.yml; the next
    deploy uses them and keeps the running jobs.

    A Slurm that was built from source gives way to packages of the same release in that deploy, and stays on the
    nodes until --finish.
    """
    if check + finish + undo > 1:
        raise click.UsageError("only one of --check, --finish and --undo")
    if finish or undo:
        return _end(settings, "finish" if finish else "undo", options, as_json=as_json)
    from deepopsctl.cli.output import emit_json, info
    from deepopsctl.cli.views.run import failure_lines
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.secrets import read
    from deepopsctl.cluster.settings import site_values
    from deepopsctl.errors import InterruptedRunError
    from deepopsctl.run.lock import cluster_lock
    from deepopsctl.takeover.preflight import read_facts
    from deepopsctl.takeover.takeover import apply, plan_takeover

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    with tempfile.TemporaryDirectory(prefix="deepopsctl-takeover-") as facts_dir:
        outcome = _collect_facts(settings, directory, Path(facts_dir), len(cluster.nodes), options)
        if outcome.stopped:
            raise InterruptedRunError("stopped before all nodes had answered: nothing was written", "run it again")
        facts = read_facts(Path(facts_dir))
    for line in failure_lines(outcome.summary.failures):
        info(line)
    if cluster.controllers[0].name not in facts:
        if as_json:
            failed: RunObject = {**outcome.as_object(), "ok": False}
            emit_json(failed)
        return int(outcome.exit_code) or 1
    stored = read(directory.secrets, directory.vault_password)
    result = plan_takeover(cluster, facts, stored.get("munge_key", ""), site_values(directory))
    written: tuple[str, ...] = ()
    if not check:
        with cluster_lock(directory.runs, "deepopsctl takeover"):
            written = apply(directory, result)
    _show(result, written, directory, check=check)
    if as_json:
        emit_json(result.document(written=not check))
    return int(outcome.exit_code)


def _end(settings: Settings, phase: str, options: dict[str, Any], *, as_json: bool) -> int:
    """Remove what was built from source, or run it again."""
    from deepopsctl.cli.execute import run_and_report, run_request
    from deepopsctl.cli.interactive import confirm_protected
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.takeover.takeover import END_PLAYBOOK, forget_source, require_taken_over, source_prefix

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    what = "remove the Slurm from before from" if phase == "finish" else "run the Slurm from before again on"
    confirm_protected(f"{what} the nodes of {cluster.name}?", cluster, options["confirm"])
    (source_prefix if phase == "finish" else require_taken_over)(directory)
    request = run_request(
        settings, directory, options, (END_PLAYBOOK,), component="slurm", command=f"takeover-{phase}",
        extra_vars={"deepops_takeover_phase": phase},
    )  # fmt: skip
    hosts = tuple(node.name for node in cluster.nodes)
    status = run_and_report(request, hosts, verbosity=settings.verbosity, as_json=as_json)
    if status == 0 and phase == "finish":
        forget_source(directory)
    return status


def _collect_facts(
    settings: Settings, directory: Any, facts_dir: Path, nodes: int, options: dict[str, Any]
) -> RunOutcome:
    from deepopsctl.cli.execute import run_request
    from deepopsctl.cli.output import info
    from deepopsctl.cli.views.run import show_progress
    from deepopsctl.run.runner import run_readonly
    from deepopsctl.takeover.takeover import PLAYBOOK

    info(f"takeover: reads {amount(nodes, 'node')}, changes nothing on them")
    variables = {"deepops_takeover_directory": str(facts_dir)}
    request = run_request(
        settings, directory, options, (PLAYBOOK,), component="slurm", command="takeover", extra_vars=variables
    )
    with show_progress(nodes, settings.verbosity) as watch:
        return run_readonly(request, watch)


def _show(result: Takeover, written: tuple[str, ...], directory: Any, *, check: bool) -> None:
    from deepopsctl.cli.output import info, table

    for line in table(("kept", "as it is"), result.facts):
        info(line)
    for warning in result.warnings:
        info(click.style("warning: ", fg="yellow") + warning)
    for entry in result.not_kept:
        info(click.style("not kept: ", fg="yellow") + entry)
    if result.not_kept:
        info(
            "    deploy changes these; `deepopsctl plan slurm` shows the new values. A key of slurm.conf is kept when "
            "it is in slurm_config in settings.yml"
        )
    if check:
        info("nothing was written because of --check")
    else:
        info(f"written: {', '.join(written) or 'nothing, all values were stored already'}; the nodes are unchanged")
        info(f"next: deepopsctl -C {quote(str(directory.path))} deploy")
