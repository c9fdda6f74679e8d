"""`deepopsctl restore`: bring a lost controller back from a backup."""

from __future__ import annotations

from typing import Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import json_option


@click.command()
@click.argument("snapshot", default="")
@click.option(
    "--only",
    type=click.Choice(["state", "accounting"]),
    help="Restore only slurmctld's state, or only the accounting database; the other was not lost.",
)
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
@click.option(
    "--confirm", default="", metavar="NAME", help="The cluster's name, required if cluster.yml sets `protected: true`."
)
@json_option
@click.pass_obj
def restore(settings: Settings, /, *, snapshot: str, only: str | None, as_json: bool, **options: Any) -> int:
    """Restore SNAPSHOT (default: the newest) onto a controller that has neither state nor accounting.

    The new controller is in cluster.yml, under the same or another name. Running jobs continue and waiting jobs stay
    in the queue; jobs that were lost since the backup are held. After a failure or an interruption, run it again: it
    resumes.
    """
    from deepopsctl.cli.interactive import open_console, show_report
    from deepopsctl.lifecycle.restore import PARTS, Restore, restore as restore_cluster

    console, directory, base = open_console(settings, "restore", options)
    with console.attentive():
        report = restore_cluster(directory, Restore(snapshot, (only,) if only else PARTS), base, console)
    return show_report(report, directory, as_json=as_json)
