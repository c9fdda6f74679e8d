"""`deepopsctl upgrade`: another release of Slurm on the whole cluster, while jobs run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import confirm_option, json_option, sudo_option, yes_option

if TYPE_CHECKING:
    from deepopsctl.lifecycle.upgrade_plan import Plan


@click.group()
def upgrade() -> None:
    """Upgrade what is deployed, in batches, while jobs run."""


@upgrade.command(short_help="Take the cluster to another release of Slurm.")
@click.option("--to", "release", required=True, metavar="RELEASE", help="Release in the cluster's repository: 26.05.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--batch", default="10%", show_default=True, metavar="N|N%", help="Compute nodes at a time.")
@click.option(
    "--max-down", type=click.IntRange(0), help="Stop when more nodes than this failed.  [default: one in twenty]"
)
@click.option("--drain", is_flag=True, help="Wait for the end of a batch's jobs first.")
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1), default=86400, show_default=True, metavar="SECONDS",
    help="How long to wait for jobs with --drain.",
)  # fmt: skip
@sudo_option
@yes_option
@confirm_option
@json_option
@click.pass_obj
def slurm(
    settings: Settings,
    /,
    *,
    release: str,
    only_plan: bool,
    batch: str,
    max_down: int | None,
    drain: bool,
    timeout_s: int,
    as_json: bool,
    **options: Any,
) -> int:
    """Take all nodes to Slurm RELEASE: slurmdbd, slurmctld, login nodes, then compute nodes in batches.

    Running jobs continue. The packages come from the cluster's repository (`deepopsctl packages`). Accounting and state
    are saved first; where the new slurmdbd or slurmctld does not start, everything is put back. After an interruption,
    run it again: it goes on.
    """
    from deepopsctl.cli.interactive import open_console, show_report
    from deepopsctl.lifecycle.upgrade_plan import Wanted, batch_size
    from deepopsctl.lifecycle.upgrade_slurm import plan_upgrade, upgrade_slurm

    batch_size(batch, 1)
    wanted = Wanted(release, batch, max_down, drain, timeout_s)
    console, directory, base = open_console(settings, "upgrade-slurm", options)
    if only_plan:
        return _show_plan(plan_upgrade(directory, wanted, base), as_json=as_json)
    with console.attentive():
        report = upgrade_slurm(directory, wanted, base, console)
    return show_report(report, directory, as_json=as_json)


def _show_plan(plan: Plan, *, as_json: bool) -> int:
    from deepopsctl.cli.output import SCHEMA, emit_json, show
    from deepopsctl.cli.views.upgrade import plan_lines

    if as_json:
        document = plan.document()
        emit_json({"schema": SCHEMA, "command": "upgrade slurm", "ok": not plan.refusals, **document})
    else:
        for line in plan_lines(plan):
            show(line)
    return 1 if plan.refusals else 0
