"""`deepopsctl node`: one node or some, without touching the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli import Settings
from deepopsctl.cli.members import add, remove, replace
from deepopsctl.cli.options import Seconds, ask_passwords, connection_options, json_option, names_nodes

if TYPE_CHECKING:
    from deepopsctl.draining import Draining, Wish
    from deepopsctl.invocation import RunRequest
    from deepopsctl.slurmstate import SlurmJob

# longer ones are cut by nobody, and read by nobody
LONGEST_REASON = 500
nodes_argument = click.argument("nodes", nargs=-1, required=True, callback=names_nodes, metavar="NODES...")


@click.group()
def node() -> None:
    """Add, remove and replace nodes, take them out of service and give them back; the others go on working."""


for verb in (add, remove, replace):
    node.add_command(verb)


@node.command(short_help="Start no new jobs on NODES; those that run go on.")
@nodes_argument
@click.option("--reason", required=True, metavar="TEXT", help="Why; Slurm shows it, with `deepopsctl: ` in front.")
@click.option("--wait", is_flag=True, help="Return when no job runs on the nodes any more.")
@click.option(
    "--timeout",
    type=Seconds(),
    default=0,
    metavar="SECONDS",
    help="With --wait: give up after this time; the nodes stay drained.",
)
@connection_options
@json_option
@click.pass_obj
def drain(settings: Settings, /, nodes: tuple[str, ...], *, as_json: bool, **given: Any) -> int:
    """Start no new jobs on NODES; those that run go on to their end.

    A node that somebody else drained keeps their reason.
    """
    from deepopsctl.draining import Wish
    from deepopsctl.printable import printable

    # one line, as Slurm shows it
    given["reason"] = printable(" ".join(given["reason"].split()))
    if not given["reason"]:
        raise click.BadParameter("say why: whoever finds the node drained will want to know", param_hint="--reason")
    if len(given["reason"]) > LONGEST_REASON:
        raise click.BadParameter(f"use at most {LONGEST_REASON} characters", param_hint="--reason")
    return _change(settings, Wish.DRAIN, nodes, given, as_json=as_json)


@node.command(short_help="Let jobs start again where `node drain` ended that.")
@nodes_argument
@connection_options
@json_option
@click.pass_obj
def resume(settings: Settings, /, nodes: tuple[str, ...], *, as_json: bool, **given: Any) -> int:
    """Let jobs start on NODES again that `node drain` took out of service.

    A node that somebody else drained, that is down, or whose GPUs are not what cluster.yml says, is refused by name;
    the others are resumed.
    """
    from deepopsctl.draining import Wish

    return _change(settings, Wish.RESUME, nodes, given, as_json=as_json)


def _change(settings: Settings, wish: Wish, words: Sequence[str], given: dict[str, Any], *, as_json: bool) -> int:
    from dataclasses import replace

    from deepopsctl.cli.output import emit_json, say
    from deepopsctl.cli.running import run_watched
    from deepopsctl.clusterdir import ClusterDir
    from deepopsctl.draining import drain_request, examine_draining
    from deepopsctl.nodeselect import select_compute

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    names = select_compute(words, cluster)
    directory.refresh_inventory(cluster)
    passwords = ask_passwords(ssh=given["ask_pass"], become=given["ask_become_pass"])
    gpus = [node.name for node in cluster.nodes if node.gpus and node.name in names]
    request = replace(
        drain_request(directory, wish, names, given.get("reason") or "", gpus),
        content=settings.content,
        user=given["user"] or "",
        **passwords,
    )
    done = examine_draining(run_watched(request, names, verbosity=settings.verbosity), wish)
    for line in _lines(done, request):
        say(line)
    if given.get("wait") and done.outcome.ok and done.jobs:
        _wait(request, names, given["timeout"])
        done = done.without_jobs()
    if as_json:
        emit_json(done.document())
    return int(done.outcome.exit_code)


def _wait(request: RunRequest, names: Sequence[str], timeout: float) -> None:
    from deepopsctl.cli.output import say
    from deepopsctl.draining import wait_for_jobs
    from deepopsctl.nodelist import fold

    def tell(jobs: Sequence[SlurmJob]) -> None:
        say(f"waiting on {fold(names)} for {_jobs(jobs, 'job', 'jobs')} (Ctrl-C ends the wait, the nodes stay drained)")

    wait_for_jobs(request, names, timeout, tell)
    say(f"no job runs on {fold(names)} any more")


def _lines(done: Draining, request: RunRequest) -> Iterator[str]:
    """What became of every node, alike ones together; then the jobs, what was refused, and the verdict."""
    from deepopsctl.cli.running import failure_lines, verdict_line
    from deepopsctl.nodelist import fold

    alike: dict[tuple[str, str], list[str]] = {}
    for found in done.nodes:
        if found.action != "refused":
            alike.setdefault((found.action, found.message), []).append(found.name)
    for (action, message), names in alike.items():
        yield f"{click.style(action, bold=True)}: {fold(names)}" + (f": {message}" if message else "")
    if done.jobs and done.wish == "drain":
        yield f"    {_jobs(done.jobs, 'job goes on to its end', 'jobs go on to their end')}"
    yield from failure_lines(done.outcome.summary.failures)
    changed = sum(found.changed for found in done.nodes)
    what = f"{changed} of {len(done.nodes)} nodes {done.word}" if changed else "nothing changed"
    yield verdict_line(done.outcome, request, what, word="" if done.nodes else "not done")


def _jobs(jobs: Sequence[SlurmJob], one: str, many: str, most: int = 10) -> str:
    """`2 jobs go on to their end: 41, 42`."""
    listed = ", ".join(job.id for job in jobs[:most]) + (", ..." if len(jobs) > most else "")
    return f"{len(jobs)} {one if len(jobs) == 1 else many}: {listed}"
