"""`deepopsctl status`: show nodes, jobs, versions, drift and the last runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import connection_options, json_option, seconds_between

if TYPE_CHECKING:
    from deepopsctl.status.cluster import ClusterStatus

_COLOURS = {"problem": "red", "no answer": "yellow", "note": "cyan"}


@click.command()
@click.option(
    "--node-timeout",
    callback=seconds_between(2, 86_400),
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="How long until a node counts as not answering.",
)
@connection_options
@json_option
@click.pass_obj
def status(settings: Settings, /, *, as_json: bool, node_timeout: int, **options: Any) -> int:
    """Show nodes, jobs, components, versions, and manual changes (drift) since the last deploy.

    Read-only; works while a deploy runs. Exit codes: 1 there is a problem, 4 the only problem is that nodes did not
    answer.
    """
    from deepopsctl.cli.execute import run_request
    from deepopsctl.cli.output import emit_json
    from deepopsctl.cli.views.run import show_progress
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.status.cluster import query_status

    directory = ClusterDir.open(settings.directory)
    request = run_request(settings, directory, options, ("",))
    if settings.verbosity > 2:
        with show_progress(None, settings.verbosity) as watch:
            cluster_status = query_status(request, node_timeout, watch)
    else:
        cluster_status = query_status(request, node_timeout)
    if as_json:
        emit_json(cluster_status.document())
    else:
        _show(cluster_status)
    return int(cluster_status.exit_code)


def _show(cluster_status: ClusterStatus) -> None:
    from datetime import UTC, datetime
    from shutil import get_terminal_size

    from deepopsctl.cli.output import info, pasteable, show, table
    from deepopsctl.status import table as text

    width = max(get_terminal_size((100, 24)).columns, 60)
    show(click.style(text.head(cluster_status), bold=True))
    show("")
    for line in table(text.HEADER, text.node_rows(cluster_status.nodes), text.RIGHT):
        show(line)
    show("")
    if rows := text.component_rows(cluster_status):
        for line in table(text.COMPONENTS_HEADER, rows):
            show(line)
        show("")
    for entry in text.finding_lines(cluster_status.findings, width):
        word = str(entry.severity) if entry.severity else ""
        show(click.style(word, fg=_COLOURS.get(word), bold=True) + pasteable(entry.text.removeprefix(word)))
    if cluster_status.findings:
        show("")
    if versions := list(text.version_lines(cluster_status)):
        for line in (*versions, ""):
            show(line)
    now = datetime.now(UTC)
    for line in (*text.last_lines(cluster_status.last, now), *text.backup_lines(cluster_status, now)):
        show(pasteable(line))
    colour = {0: "green", 4: "yellow"}.get(int(cluster_status.exit_code), "red")
    info(click.style(f"status: {text.summary_line(cluster_status)}", fg=colour, bold=True))
