"""`deepopsctl validate`: prove through Slurm that the cluster works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli import Settings
from deepopsctl.cli.burninoptions import burnin_options, leave, wish
from deepopsctl.cli.options import Seconds, ask_passwords, connection_options, json_option, limit_option
from deepopsctl.cli.output import emit_json, say

if TYPE_CHECKING:
    from deepopsctl.clusterdir import ClusterDir
    from deepopsctl.invocation import RunRequest
    from deepopsctl.report.facts import Facts
    from deepopsctl.validation import Validation

# validation.SUITES, without importing it: --help answers at once
SUITES = ("smoke", "gpu", "storage", "monitoring", "all", "burnin")
_file_option = click.Path(path_type=Path, dir_okay=False, writable=True)


@click.command()
@click.argument("suites", nargs=-1, type=click.Choice(SUITES), metavar="[SUITE]...")
@limit_option
@click.option("--junit", type=_file_option, metavar="FILE", help="Write JUnit XML, for CI servers.")
@click.option("--html", type=_file_option, metavar="FILE", help="Write a report: one page, nothing else needed.")
@click.option("--with-libraries", is_flag=True, help="gpu: bring cuBLAS and NCCL to the GPU nodes, measure with them.")
@click.option("--remove-libraries", is_flag=True, help="gpu: remove them from the GPU nodes first.")
@click.option("--timeout", type=Seconds(), default=0, metavar="SECONDS", help="Give up after this time.")
@burnin_options
@connection_options
@json_option
@click.pass_context
def validate(ctx: click.Context, /, suites: tuple[str, ...], *, as_json: bool, **given: Any) -> int:
    """Prove that the cluster works, by jobs that a user could have submitted.

    SUITE is `smoke`, `gpu` (tests and measures every GPU), `storage` (tries what cluster.yml mounts from all nodes),
    `monitoring` (what Prometheus sees of the nodes, of Slurm and of a job), or `all` suites, the default. Settings are
    not changed; jobs of others are never disturbed: what has no free resources is skipped. Exit code 1 says that a
    check failed, 4 that nodes could not be reached.

    `burnin` loads all idle nodes for --duration, behind all other jobs in the queue: only where it is named, never part
    of `all`.
    """
    from deepopsctl.cli.running import run_watched
    from deepopsctl.clusterdir import ClusterDir
    from deepopsctl.gpuvalidation import with_gpus
    from deepopsctl.limits import resolve_limit
    from deepopsctl.validation import examine, keep

    settings: Settings = ctx.obj
    wanted = _wanted(suites)
    libraries = _libraries(wanted, given)
    burnin = wish(ctx, wanted, given)
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    limit = resolve_limit(given["limit"] or "", cluster)
    request = _request(settings, directory, limit.text, wanted, given, libraries)
    if burnin:
        request = replace(request, extra_vars={**request.extra_vars, **burnin.variables()})
    started = datetime.now().astimezone()
    outcome = run_watched(request, limit.hosts, verbosity=settings.verbosity)
    leave(outcome, request, burnin)
    validation, told = with_gpus(examine(outcome, cluster, wanted, started), cluster, directory)
    keep(validation)
    _report(validation, given["junit"], given["html"])
    for text in told:
        say(f"note: {text}")
    if as_json:
        emit_json(validation.document())
    return int(validation.exit_code)


def _wanted(suites: tuple[str, ...]) -> tuple[str, ...]:
    from deepopsctl.validation import EXPLICIT
    from deepopsctl.validation import SUITES as ALL

    usual = tuple(suite for suite in ALL if not suites or "all" in suites or suite in suites)
    return usual + tuple(suite for suite in EXPLICIT if suite in suites)


def _libraries(suites: tuple[str, ...], given: dict[str, Any]) -> str:
    """What becomes of cuBLAS and NCCL on the GPU nodes: `present`, `absent`, or '' for as they are."""
    bring, remove = given["with_libraries"], given["remove_libraries"]
    if (bring or remove) and "gpu" not in suites:
        raise click.UsageError("--with-libraries and --remove-libraries are for the suite gpu")
    if bring and remove:
        raise click.UsageError("--with-libraries and --remove-libraries exclude each other")
    return "present" if bring else "absent" if remove else ""


def _request(
    settings: Settings,
    directory: ClusterDir,
    limit: str,
    suites: tuple[str, ...],
    given: dict[str, Any],
    libraries: str,
) -> RunRequest:
    from deepopsctl.invocation import RunRequest
    from deepopsctl.validation import COMMAND, LIBRARIES, LIBRARIES_STATE, playbook_of

    first = (playbook_of(LIBRARIES),) if libraries else ()
    playbooks = (*first, *(playbook_of(suite) for suite in suites))
    return RunRequest(
        directory,
        playbooks[0],
        component=COMMAND,
        command=COMMAND,
        more=playbooks[1:],
        extra_vars={LIBRARIES_STATE: libraries} if libraries else {},
        limit=limit,
        content=settings.content,
        verbosity=settings.verbosity if settings.verbosity > 2 else 0,
        timeout=given["timeout"],
        user=given["user"] or "",
        **ask_passwords(ssh=given["ask_pass"], become=given["ask_become_pass"]),
    )


def _report(validation: Validation, junit: Path | None, html: Path | None) -> None:
    """The files that were asked for, then the table and the verdict."""
    from deepopsctl.cli.checktable import show_checks
    from deepopsctl.cli.running import failure_lines
    from deepopsctl.report.html import render_html
    from deepopsctl.report.junit import render_junit
    from deepopsctl.validation import REPORT_FILE

    facts = validation.facts
    for path, render in ((junit, render_junit), (html, render_html)):
        if path:
            _write(path, render, facts)
    show_checks(facts)
    for line in failure_lines(failure for failure in validation.outcome.summary.failures if not failure.host):
        say(line)
    say(f"report: {html or validation.outcome.folder.path / REPORT_FILE}")


def _write(path: Path, render: Callable[[Facts], str], facts: Facts) -> None:
    from deepopsctl.errors import DeepOpsError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(facts), encoding="utf-8")
    except OSError as error:
        raise DeepOpsError(f"{path}: {error.strerror}", "the checks themselves are kept in the run's folder") from error
