"""`deepopsctl restore`: bring a lost controller back from a backup."""

from __future__ import annotations

from typing import Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import workflow_options


@click.command()
@click.argument("snapshot", default="")
@click.option(
    "--only",
    type=click.Choice(["state", "accounting", "monitoring"]),
    help="Restore only slurmctld's state, or only the accounting database, as the other was not lost; or the data of "
    "Prometheus and Grafana.",
)
@workflow_options
@click.pass_obj
def restore(settings: Settings, /, *, snapshot: str, only: str | None, as_json: bool, **options: Any) -> int:
    """Restore SNAPSHOT (default: the newest) onto a controller that has neither state nor accounting.

    With --only monitoring, onto a deployed monitoring host.

    The new controller is in cluster.yml, under the same or another name. Running jobs continue and waiting jobs stay
    in the queue; jobs that were lost since the backup are held. After a failure or an interruption, run it again: it
    resumes.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.lifecycle.backup import MONITORING
    from deepopsctl.lifecycle.restore import PARTS, Restore, restore as restore_cluster
    from deepopsctl.lifecycle.restore_monitoring import restore_monitoring

    console, _, base = open_console(settings, "restore", options)
    if only == MONITORING:
        return run_workflow(restore_monitoring, snapshot, base, console, as_json=as_json)
    wanted = Restore(snapshot, (only,) if only else PARTS)
    return run_workflow(restore_cluster, wanted, base, console, as_json=as_json)
