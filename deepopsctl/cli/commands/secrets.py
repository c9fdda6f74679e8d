"""`deepopsctl secrets`: rotate the cluster's keys and passwords."""

from __future__ import annotations

from typing import Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import RenamedOption, confirm_option, json_option, sudo_option, yes_option

WHAT = ("munge-key", "database-password", "monitoring-passwords")
# without a name
USUAL = WHAT[:2]


@click.group()
def secrets() -> None:
    """Rotate the cluster's keys and passwords in secrets.yml."""


@secrets.command(short_help="Replace the munge key and the database password; jobs keep running.")
@click.argument("what", nargs=-1, type=click.Choice(WHAT), metavar="[SECRET]...")
@click.option(
    "--exclude",
    cls=RenamedOption,
    former="--leave-out",
    multiple=True,
    metavar="NODES",
    help="Nodes that are off: a later deploy gives them the new key.",
)
@sudo_option
@yes_option
@confirm_option
@json_option
@click.pass_obj
def rotate(settings: Settings, /, what: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Replace the munge key and the password of the accounting database; or SECRET alone.

    SECRET is munge-key, database-password, or monitoring-passwords (of Prometheus, Alertmanager and Grafana).

    Running jobs continue; slurmctld is stopped for some seconds while the nodes change their keys. If a node does not
    answer, nothing is changed. After a failure or an interruption, run it again: it resumes.
    """
    from deepopsctl.cli.interactive import open_console, show_report
    from deepopsctl.cluster.selection import select_nodes
    from deepopsctl.nodes.rotate_secrets import Rotation, Secret, rotate as rotate_secrets

    console, directory, base = open_console(settings, "secrets-rotate", options)
    left_out = select_nodes(options["exclude"], directory.cluster(), "--exclude")
    rotation = Rotation(frozenset(Secret(name) for name in what or USUAL), left_out)
    with console.attentive():
        report = rotate_secrets(directory, rotation, base, console)
    return show_report(report, directory, as_json=as_json)
