"""`deepopsctl node`: add, remove, replace, reboot, drain and resume nodes without touching the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import (
    complete_nodes,
    connection_options,
    console_options,
    duration_option,
    hold_waiting_option,
    json_option,
    names_nodes,
    sudo_option,
    together,
    user_option,
    workflow_options,
    yes_option,
)
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.nodes.drain import DrainAction, DrainResult
    from deepopsctl.run.request import RunRequest
    from deepopsctl.slurm.state import SlurmJob


_wait_option = duration_option("1h", "How long to wait for running jobs: 90s, 30m, 2h, 1d.")
# longer ones are not read
LONGEST_REASON = 500
nodes_argument = click.argument(
    "nodes", nargs=-1, required=True, callback=names_nodes, shell_complete=complete_nodes, metavar="NODES..."
)
# of the first login to a new node
_login_options = together(
    click.option("-k", "--ask-pass", is_flag=True, help="Ask for the SSH password at once, even if a key might work."),
    click.option(
        "--password-file",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        help="Read the SSH password from the first line of this file (0600), - for stdin.",
    ),
    click.option(
        "--identity",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A private key that can log in already.  [default: your own keys and agent]",
    ),
)


def _one_line(reason: str) -> str:
    """A reason as Slurm shows it."""
    from deepopsctl.text.printable import printable

    line = printable(" ".join(reason.split()))
    if len(line) > LONGEST_REASON:
        raise click.BadParameter(f"use at most {LONGEST_REASON} characters", param_hint="--reason")
    return line


@click.command(short_help="Add nodes; they take jobs once they are validated.")
@click.argument("names", callback=names_nodes, metavar="NAMES[=ADDRESSES]")
@click.option(
    "--like",
    default="",
    metavar="NODE",
    shell_complete=complete_nodes,
    help="Copy roles, GPUs, features and partitions from this node.",
)
@click.option("--gpus", metavar="TYPE:COUNT", help="GPUs of each node, or none.  [default: those of --like]")
@click.option("--features", metavar="LIST", help="Slurm features, comma-separated.  [default: those of --like]")
@click.option("--partition", multiple=True, metavar="NAME", help="Partition of the nodes.  [default: those of --like]")
@_login_options
@sudo_option
@user_option
@yes_option
@json_option
@click.pass_obj
def add(settings: Settings, /, names: str, *, as_json: bool, **options: Any) -> int:
    """Add nodes: update cluster.yml, set up SSH, deploy, validate, then accept jobs. Other compute nodes don't change.

    Without --like, the last node with a similar name is the model (gpu02 for gpu03). After a failure, run the same
    command again: it resumes where it stopped. No job starts on a node before its validation has passed.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.nodes.add import add as add_members
    from deepopsctl.nodes.new_nodes import AddRequest

    console, _, base = open_console(settings, "node-add", options)
    request = AddRequest(names, options["gpus"], options["features"], options["like"], options["partition"])
    return run_workflow(add_members, request, base, console, as_json=as_json)


@click.command(short_help="Remove nodes after their last job.")
@click.argument("names", callback=names_nodes, shell_complete=complete_nodes, metavar="NAMES")
@_wait_option
@click.option("--force", is_flag=True, help="Cancel running jobs instead of waiting for them.")
@hold_waiting_option
@workflow_options
@click.pass_obj
def remove(settings: Settings, /, names: str, *, as_json: bool, **options: Any) -> int:
    """Remove nodes: drain, wait for their jobs, stop the services, remove them from all configuration.

    Nothing is removed while a job runs there, or while a waiting job needs the nodes. Unreachable nodes are removed
    with a warning.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.nodes.drain import DrainOptions
    from deepopsctl.nodes.remove import remove as remove_members

    console, _, base = open_console(settings, "node-remove", options)
    request = DrainOptions(names, options["timeout"], force=options["force"], hold_waiting=options["hold_waiting"])
    return run_workflow(remove_members, request, base, console, as_json=as_json)


@click.command(short_help="Replace the hardware of a node.")
@click.argument("name", callback=names_nodes, shell_complete=complete_nodes, metavar="NAME")
@click.option("--address", default="", metavar="ADDRESS", help="The new host's address.  [default: unchanged]")
@_wait_option
@hold_waiting_option
@_login_options
@sudo_option
@user_option
@console_options
@click.pass_obj
def replace(settings: Settings, /, name: str, *, as_json: bool, **options: Any) -> int:
    """Replace the hardware behind a node name: new host key, hardware detected again, deploy, validate, then jobs."""
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.nodes.replace import ReplaceRequest, replace as replace_member

    console, _, base = open_console(settings, "node-replace", options)
    request = ReplaceRequest(name, options["address"], options["timeout"], hold_waiting=options["hold_waiting"])
    return run_workflow(replace_member, request, base, console, as_json=as_json)


@click.command(short_help="Reboot NODES when their jobs have ended.")
@nodes_argument
@click.option("--reason", default="", metavar="TEXT", help="Shown by Slurm after `deepopsctl: node reboot`.")
@click.option("--wait", is_flag=True, help="Wait until the nodes are back, and validate them before they take jobs.")
@duration_option("1d", "With --wait: how long to wait for running jobs and for the nodes.")
@click.option(
    "--max-down", type=click.IntRange(1), metavar="NUMBER",
    help="With --wait: how many of NODES may be out of service at once.  [default: all]",
)  # fmt: skip
@workflow_options
@click.pass_obj
def reboot(settings: Settings, /, nodes: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Reboot NODES when their jobs have ended; no job is ended, and no new one starts before.

    Slurm drains the nodes and reboots each once it is idle. A node that another user drained is left alone and listed.
    With --wait a node takes jobs again when it passed its validation, without --wait when it has registered. Login
    nodes reboot at once, one after the other.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.nodes.reboot import RebootOptions, reboot as reboot_members

    if options["max_down"] and not options["wait"]:
        raise click.UsageError("--max-down needs --wait: the next node is rebooted when one is back")
    console, _, base = open_console(settings, "node-reboot", options)
    request = RebootOptions(
        nodes, _one_line(options["reason"]), options["wait"], options["timeout"], options["max_down"] or 0
    )
    return run_workflow(reboot_members, request, base, console, as_json=as_json)


@click.group()
def node() -> None:
    """Add, remove, replace, reboot, drain and resume nodes; the other nodes keep working."""


for member_verb in (add, remove, replace, reboot):
    node.add_command(member_verb)


@node.command(short_help="Drain NODES: no new jobs, running jobs continue.")
@nodes_argument
@click.option(
    "--reason", required=True, metavar="TEXT", help="Drain reason, shown by Slurm with the prefix `deepopsctl: `."
)
@click.option("--wait", is_flag=True, help="Wait until no job runs on the nodes.")
@duration_option("0", "With --wait: stop waiting after this time (90s, 2h); the nodes stay drained.")
@connection_options
@json_option
@click.pass_obj
def drain(settings: Settings, /, nodes: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Drain NODES: no new jobs start, running jobs continue.

    A node that another user drained keeps its reason.
    """
    from deepopsctl.nodes.drain import DrainAction

    options["reason"] = _one_line(options["reason"])
    if not options["reason"]:
        raise click.BadParameter("give a reason: others see in Slurm why the node is drained", param_hint="--reason")
    return _change(settings, DrainAction.DRAIN, nodes, options, as_json=as_json)


@node.command(short_help="Resume NODES that `node drain` drained.")
@nodes_argument
@connection_options
@json_option
@click.pass_obj
def resume(settings: Settings, /, nodes: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Resume NODES that `node drain` drained.

    A node that another user drained, that is down, or whose GPUs differ from cluster.yml is refused by name;
    the others are resumed.
    """
    from deepopsctl.nodes.drain import DrainAction

    return _change(settings, DrainAction.RESUME, nodes, options, as_json=as_json)


def _change(
    settings: Settings, action: DrainAction, words: Sequence[str], options: dict[str, Any], *, as_json: bool
) -> int:
    from deepopsctl.cli.execute import run_request, run_watched
    from deepopsctl.cli.output import emit_json, info
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import select_compute
    from deepopsctl.nodes.drain import drain_request, read_drain_result

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    names = select_compute(words, cluster)
    directory.refresh_inventory(cluster)
    gpus = [node.name for node in cluster.nodes if node.gpus and node.name in names]
    base = run_request(settings, directory, options, ("",))
    request = drain_request(base, action, names, options.get("reason") or "", gpus)
    done = read_drain_result(run_watched(request, names, verbosity=settings.verbosity), action)
    for line in _lines(done, request):
        info(line)
    if options.get("wait") and done.outcome.ok and done.jobs:
        _wait(request, names, options["timeout"])
        done = done.without_jobs()
    if as_json:
        emit_json(done.document())
    return int(done.outcome.exit_code)


def _wait(request: RunRequest, names: Sequence[str], timeout: float) -> None:
    from deepopsctl.cli.output import info
    from deepopsctl.nodes.wait_for_jobs import wait_for_jobs
    from deepopsctl.text.node_sets import fold

    def show_jobs(jobs: Sequence[SlurmJob]) -> None:
        info(
            f"waiting on {fold(names)} for {_jobs(jobs, 'job', 'jobs')} (Ctrl-C ends the wait, the nodes stay drained)"
        )

    wait_for_jobs(request, names, timeout or None, show_jobs)
    info(f"no job runs on {fold(names)} any more")


def _lines(done: DrainResult, request: RunRequest) -> Iterator[str]:
    """The result for every node, equal ones together; then the jobs, what was refused, and the summary."""
    from deepopsctl.cli.views.run import failure_lines, summary_line
    from deepopsctl.text.node_sets import fold

    names_by_action: dict[tuple[str, str], list[str]] = {}
    for drained in done.nodes:
        if drained.action != "refused":
            names_by_action.setdefault((drained.action, drained.message), []).append(drained.name)
    for (action, message), names in names_by_action.items():
        yield f"{click.style(action, bold=True)}: {fold(names)}" + (f": {message}" if message else "")
    if done.jobs and done.action == "drain":
        yield f"    {_jobs(done.jobs, 'job continues to its end', 'jobs continue to their end')}"
    yield from failure_lines(done.outcome.summary.failures)
    changed = sum(drained.changed for drained in done.nodes)
    what = f"{changed} of {amount(len(done.nodes), 'node')} {done.word}" if changed else "nothing changed"
    yield summary_line(done.outcome, request, what, word="" if done.nodes else "not done")


def _jobs(jobs: Sequence[SlurmJob], one: str, many: str, most: int = 10) -> str:
    """`2 jobs continue to their end: 41, 42`."""
    listed = ", ".join(job.id for job in jobs[:most]) + (", ..." if len(jobs) > most else "")
    return f"{len(jobs)} {one if len(jobs) == 1 else many}: {listed}"
