"""`deepopsctl validate`: run validation jobs through Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.checks.suites import BURNIN, EXPLICIT, HA, LOCAL, SMOKE, SUITES
from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import (
    confirm_option,
    connection_options,
    duration_option,
    json_option,
    limit_option,
    seconds_between,
    together,
)
from deepopsctl.cli.output import emit_json, info

if TYPE_CHECKING:
    from deepopsctl.report.model import Facts
    from deepopsctl.run.outcome import RunOutcome
    from deepopsctl.run.request import RunRequest
    from deepopsctl.validation.burn_in import Burnin
    from deepopsctl.validation.result import Validation


# a shorter load tests nothing; a longer one exceeds the time limits of partitions
_USUAL, _SHORTEST_S, _LONGEST_S = "10m", 10, 7 * 86_400

# the variable of validate/smoke.yml
GUIDE_SCRIPT = "deepops_guide_script"
_file_option = click.Path(path_type=Path, dir_okay=False, writable=True)


burnin_options = together(
    click.option(
        "--duration", default=_USUAL, show_default=True, callback=seconds_between(_SHORTEST_S, _LONGEST_S),
        metavar="DURATION", help="burnin: load each node for this time (90s, 10m, 2h).",
    ),
    click.option("--partition", default="", metavar="NAME", help="burnin: run in this partition."),
    click.option("--qos", default="", metavar="QOS", help="burnin: QOS of its jobs, preferably preemptible."),
)  # fmt: skip


def burn_in_request(ctx: click.Context, wanted: tuple[str, ...], options: Mapping[str, Any]) -> Burnin | None:
    """The requested burn-in; None without one, and then its options are refused."""
    from deepopsctl.validation.burn_in import Burnin

    if BURNIN in wanted:
        return Burnin(options["duration"], options["partition"], options["qos"])
    for name in ("duration", "partition", "qos"):
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is for the burn-in only: deepopsctl validate burnin --{name} ...")
    return None


def finish_burn_in(outcome: RunOutcome, request: RunRequest, burnin: Burnin | None) -> None:
    """Save the measurements of a run; if it was stopped, cancel its jobs, or print the command that does."""
    from deepopsctl.validation.burn_in import end, save_results

    if burnin is None:
        return
    save_results(outcome)
    if not outcome.stopped:
        return
    info("burn-in: cancelling its jobs")
    if not end(request, burnin):
        info(
            "burn-in: its jobs may continue; on a host with Slurm's tools, as the cluster's user: "
            f"{burnin.cancel_command}"
        )


@click.command()
@click.argument("suites", nargs=-1, type=click.Choice((*SUITES, "all", *EXPLICIT)), metavar="[SUITE]...")
@limit_option
@click.option("--junit", type=_file_option, metavar="FILE", help="Write JUnit XML, for CI servers.")
@click.option("--html", type=_file_option, metavar="FILE", help="Write a report as one self-contained page.")
@click.option(
    "--with-libraries", is_flag=True, help="gpu: install cuBLAS and NCCL on the GPU nodes and measure with them."
)
@click.option("--remove-libraries", is_flag=True, help="gpu: remove cuBLAS and NCCL from the GPU nodes first.")
@duration_option("0", "Stop after this time: 90s, 2h.")
@burnin_options
@confirm_option
@connection_options
@json_option
@click.pass_context
def validate(ctx: click.Context, /, suites: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Test the cluster with jobs that run through Slurm as an ordinary user.

    SUITE is `smoke`, `gpu` (tests and measures every GPU), `storage` (tests the mounts of cluster.yml on all nodes),
    `environment` (what users find on the nodes), `monitoring` (metrics of the nodes, of Slurm and of a job), or `all`
    suites, the default. Settings are not changed and other jobs are not disturbed: checks without free resources are
    skipped. Exit codes: 1 a check failed, 4 nodes could not be reached.

    `ha` kills, freezes and cuts off the first of several controllers, and measures how long nothing can be submitted;
    jobs continue. It takes six minutes, is never part of `all` and must be named.

    `containers` starts containers in jobs, many at the same time; it is never part of `all` and must be named.

    `network` compares links and ports of compute nodes, and measures between pairs of them; it must be named.

    `hpc` measures each idle node and all together with HPL, STREAM and more of HPC Challenge; it must be named.

    `training` trains a small model on each idle node and on all of them together; it must be named.

    `local` runs the executables of checks.d in the cluster directory, on nodes and in jobs, and suites of ReFrame; it
    must be named.

    `burnin` loads all idle nodes for --duration, behind all other jobs in the queue; it is never part of `all` and must
    be named.
    """
    from deepopsctl.cli.commands.docs import guide_of
    from deepopsctl.cli.execute import run_request, run_watched
    from deepopsctl.cli.interactive import confirm_protected
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import resolve_limit
    from deepopsctl.environment.user_guide import first_script
    from deepopsctl.validation.gpu import with_gpus
    from deepopsctl.validation.rates import with_rates
    from deepopsctl.validation.result import COMMAND, LIBRARIES, LIBRARIES_STATE, examine, playbook_of, save
    from deepopsctl.validation.site_checks import LOCAL_CHECKS, read_checks

    settings: Settings = ctx.obj
    wanted = _wanted(suites)
    libraries = _libraries(wanted, options)
    burnin = burn_in_request(ctx, wanted, options)
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    # a cluster without it sees no task, unless it is asked for
    wanted = tuple(suite for suite in wanted if suite != "environment" or suite in suites or cluster.has_environment)
    if HA in wanted:
        confirm_protected(f"kill and cut off the first controller of {cluster.name}?", cluster, options["confirm"])
    directory.refresh_inventory(cluster)
    limit = resolve_limit(options["limit"] or "", cluster)
    first = (playbook_of(LIBRARIES),) if libraries else ()
    request = run_request(
        settings,
        directory,
        options,
        (*first, *(playbook_of(suite) for suite in wanted)),
        component=COMMAND,
        command=COMMAND,
        extra_vars={
            **({LIBRARIES_STATE: libraries} if libraries else {}),
            **(burnin.variables() if burnin else {}),
            **({GUIDE_SCRIPT: first_script(guide_of(directory, cluster))} if SMOKE in wanted else {}),
            **({LOCAL_CHECKS: read_checks(directory.path)} if LOCAL in wanted else {}),
        },
        limit=limit.text,
        timeout=options["timeout"],
    )
    started = datetime.now().astimezone()
    outcome = run_watched(request, limit.hosts, verbosity=settings.verbosity)
    finish_burn_in(outcome, request, burnin)
    validation, warnings = with_gpus(examine(outcome, cluster, wanted, started), cluster, directory)
    validation, more = with_rates(validation, directory)
    save(validation)
    _report(validation, options["junit"], options["html"])
    for text in (*warnings, *more):
        info(f"note: {text}")
    if as_json:
        emit_json(validation.document())
    return int(validation.exit_code)


def _wanted(suites: tuple[str, ...]) -> tuple[str, ...]:
    usual = tuple(suite for suite in SUITES if not suites or "all" in suites or suite in suites)
    return usual + tuple(suite for suite in EXPLICIT if suite in suites)


def _libraries(suites: tuple[str, ...], options: dict[str, Any]) -> str:
    """The state of cuBLAS and NCCL on the GPU nodes: `present`, `absent`, or '' for unchanged."""
    install, remove = options["with_libraries"], options["remove_libraries"]
    if (install or remove) and "gpu" not in suites:
        raise click.UsageError("--with-libraries and --remove-libraries are for the suite gpu")
    if install and remove:
        raise click.UsageError("--with-libraries and --remove-libraries exclude each other")
    return "present" if install else "absent" if remove else ""


def _report(validation: Validation, junit: Path | None, html: Path | None) -> None:
    """Write the requested files, then show the table and the summary."""
    from deepopsctl.cli.views.checks import show_checks
    from deepopsctl.cli.views.run import failure_lines
    from deepopsctl.report.html import render_html
    from deepopsctl.report.junit import render_junit
    from deepopsctl.validation.result import REPORT_FILE

    facts = validation.facts
    for path, render in ((junit, render_junit), (html, render_html)):
        if path:
            _write(path, render, facts)
    show_checks(facts)
    for line in failure_lines(failure for failure in validation.outcome.summary.failures if not failure.host):
        info(line)
    info(f"report: {html or validation.outcome.run_dir.path / REPORT_FILE}")


def _write(path: Path, render: Callable[[Facts], str], facts: Facts) -> None:
    from deepopsctl.errors import DeepOpsError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(facts), encoding="utf-8")
    except OSError as error:
        raise DeepOpsError(f"{path}: {error.strerror}", "the checks are saved in the run directory") from error
