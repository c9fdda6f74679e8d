"""`deepopsctl upgrade`: Slurm, the operating system and the driver on the whole cluster, while jobs run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import RenamedOption, duration_option, limit_option, together, workflow_options

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.pace import Pace
    from deepopsctl.model.json_objects import Answer, NvidiaPlanParts, OsPlanParts, SlurmPlanParts


class _Planned(Protocol):
    """What `--check` of an upgrade shows."""

    def document(self) -> OsPlanParts | SlurmPlanParts | NvidiaPlanParts:
        """Its JSON object."""


batch_option = click.option(
    "--batch", default="10%", show_default=True, metavar="N|N%", help="Compute nodes at a time."
)
failed_option = click.option(
    "--max-failed", type=click.IntRange(0), help="Stop when more nodes than this failed.  [default: one in twenty]"
)
plan_option = click.option(
    "--check",
    "only_plan",
    is_flag=True,
    cls=RenamedOption,
    old="--plan",
    help="Show what would change; change nothing.",
)


# of upgrades that wait for jobs
_pace_options = together(
    plan_option,
    limit_option,
    batch_option,
    failed_option,
    duration_option("1d", "How long to wait for running jobs: 90s, 30m, 2h, 1d."),
    click.option(
        "--window", default="", metavar="HOURS",
        help='Take nodes out of service only then: "Sat 02:00-06:00", "Mon-Fri 22:00-05:00"; local time.',
    ),
)  # fmt: skip


@click.group()
def upgrade() -> None:
    """Upgrade what is deployed, in batches, while jobs run."""


@upgrade.command(short_help="Take the cluster to another release of Slurm.")
@click.option("--to", "release", required=True, metavar="RELEASE", help="Release in the cluster's repository: 26.05.")
@plan_option
@batch_option
@failed_option
@click.option("--drain", is_flag=True, help="Wait for the end of a batch's jobs first.")
@click.option(
    "--without", multiple=True, metavar="PLUGIN", help="Upgrade though the packages lack this plugin (mpi_pmix)."
)
@duration_option("1d", "How long to wait for jobs with --drain.")
@workflow_options
@click.pass_obj
def slurm(
    settings: Settings,
    /,
    *,
    release: str,
    only_plan: bool,
    batch: str,
    max_failed: int | None,
    drain: bool,
    timeout: int,
    without: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> int:
    """Take all nodes to Slurm RELEASE: slurmdbd, slurmctld, login nodes, then compute nodes in batches.

    Running jobs continue. The packages come from the cluster's repository (`deepopsctl packages`). Accounting and state
    are saved first; where the new slurmdbd or slurmctld does not start, everything is put back. After an interruption,
    run it again: it continues.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.cli.views.upgrade import plan_lines
    from deepopsctl.lifecycle.pace import batch_size
    from deepopsctl.lifecycle.upgrade_plan import Wanted
    from deepopsctl.lifecycle.upgrade_slurm import plan_upgrade, upgrade_slurm

    batch_size(batch, 1)
    wanted = Wanted(release, batch, max_failed, drain, timeout, without)
    console, directory, base = open_console(settings, "upgrade-slurm", options)
    if only_plan:
        plan = plan_upgrade(directory, wanted, base)
        _show_plan("upgrade slurm", plan, plan_lines(plan), ok=not plan.refusals, as_json=as_json)
        return 1 if plan.refusals else 0
    _build_pyxis(directory, release)
    return run_workflow(upgrade_slurm, wanted, base, console, as_json=as_json)


def _build_pyxis(directory: ClusterDir, release: str) -> None:
    """Slurm loads no Pyxis of another release: one is built for each system whose packages lack it."""
    import os

    from deepopsctl.cli.output import info
    from deepopsctl.lifecycle.build_host import ThisMachine
    from deepopsctl.lifecycle.package_build import BuildStore
    from deepopsctl.lifecycle.pyxis_build import build_pyxis, lacking, target_of

    store = BuildStore.of_user(os.environ)
    for system in lacking(directory, release):
        target = target_of(directory, store, system, release, "")
        made, _, suite, _ = build_pyxis(directory, store, ThisMachine(), target, "", info)
        info(f"{made.text('version')} is in {suite}")


@upgrade.command("os", short_help="Upgrade the packages of the nodes, and reboot where that is needed.")
@_pace_options
@workflow_options
@click.pass_obj
def operating_system(settings: Settings, /, *, only_plan: bool, as_json: bool, **options: Any) -> int:
    """Upgrade the packages of the nodes: compute nodes when no job is there, idle ones first; then the others.

    Compute nodes are drained, upgraded, rebooted by Slurm where a kernel or a library needs it, validated and resumed.
    Login nodes and servers are upgraded one after the other, and not rebooted. Held packages stay, and so do those of
    Slurm, of the driver and of the database server. After an interruption, run it again: it continues.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.cli.views.upgrade import os_plan_lines
    from deepopsctl.lifecycle.upgrade_os import OsOptions, plan_os, upgrade_os

    wanted = OsOptions(options["limit"] or "", _pace(options))
    console, directory, base = open_console(settings, "upgrade-os", options)
    if only_plan:
        plan = plan_os(directory, wanted, base)
        _show_plan("upgrade os", plan, os_plan_lines(plan), ok=not plan.silent, as_json=as_json)
        return int(plan.exit_code)
    return run_workflow(upgrade_os, wanted, base, console, as_json=as_json)


@upgrade.command(short_help="Take the nodes with GPUs to another branch of the driver.")
@click.option("--to", "branch", required=True, metavar="BRANCH", help="Branch of the driver: 580.")
@_pace_options
@workflow_options
@click.pass_obj
def nvidia(settings: Settings, /, *, branch: str, only_plan: bool, as_json: bool, **options: Any) -> int:
    """Take nodes with GPUs to another BRANCH of the driver when no job is there, idle ones first.

    settings.yml gets the branch; then nodes are drained, get the driver, are rebooted where the old modules can't be
    unloaded, validated and resumed. After an interruption, run it again: it continues.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.cli.views.upgrade import nvidia_plan_lines
    from deepopsctl.lifecycle.upgrade_nvidia import NvidiaOptions, plan_nvidia, upgrade_nvidia

    if not (branch.isascii() and branch.isdigit()):
        raise click.BadParameter(f"{branch!r} is not a branch: it is a number, such as 580", param_hint="--to")
    wanted = NvidiaOptions(branch, options["limit"] or "", _pace(options))
    console, directory, base = open_console(settings, "upgrade-nvidia", options)
    if only_plan:
        plan = plan_nvidia(directory, wanted, base)
        _show_plan("upgrade nvidia", plan, nvidia_plan_lines(plan), ok=not plan.refusals, as_json=as_json)
        return 1 if plan.refusals else 4 if plan.silent else 0
    return run_workflow(upgrade_nvidia, wanted, base, console, as_json=as_json)


def _pace(options: Mapping[str, Any]) -> Pace:
    from deepopsctl.lifecycle.pace import Pace, batch_size, parse_window

    batch_size(options["batch"], 1)
    window = parse_window(options["window"]) if options["window"] else None
    return Pace(options["batch"], options["max_failed"], options["timeout"], window)


def _show_plan(command: str, plan: _Planned, lines: Iterable[str], *, ok: bool, as_json: bool) -> None:
    from deepopsctl.cli.output import emit_json, pasteable, show
    from deepopsctl.model.json_objects import SCHEMA

    if as_json:
        answer: Answer = {"schema": SCHEMA, "command": command, "ok": ok}
        emit_json(cast("Answer", {**answer, **plan.document()}))
    else:
        for line in lines:
            show(pasteable(line))
