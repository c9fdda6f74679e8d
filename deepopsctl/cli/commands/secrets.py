"""`deepopsctl secrets`: replace the cluster's keys and passwords."""

from __future__ import annotations

from typing import Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import json_option

WHAT = ("munge-key", "database-password")


@click.group()
def secrets() -> None:
    """The keys and passwords in secrets.yml, which only this cluster has."""


@secrets.command(short_help="Replace the munge key and the database password; jobs go on.")
@click.argument("what", nargs=-1, type=click.Choice(WHAT), metavar="[munge-key] [database-password]")
@click.option(
    "--leave-out", multiple=True, metavar="NODES", help="Nodes that are off: they get the key by a later deploy."
)
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.option(
    "--confirm", default="", metavar="NAME", help="The cluster's name, where cluster.yml says `protected: true`."
)
@json_option
@click.pass_obj
def rotate(settings: Settings, /, what: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Replace the munge key and the password of the accounting database; without a name, both.

    Jobs that run go on; slurmctld is off for the seconds in which the nodes change their keys. Where a node does not
    answer, nothing is changed. Run it again after a failure or an interruption: it goes on.
    """
    from deepopsctl.cli.interactive import open_console, show_report
    from deepopsctl.cluster.selection import select_nodes
    from deepopsctl.nodes.rotate_secrets import Rotation, Secret, rotate as rotate_secrets

    console, directory, base = open_console(settings, "secrets-rotate", options)
    left_out = select_nodes(options["leave_out"], directory.cluster())
    rotation = Rotation(frozenset(Secret(name) for name in what or WHAT), left_out)
    with console.attentive():
        report = rotate_secrets(directory, rotation, base, console)
    return show_report(report, directory, as_json=as_json)
