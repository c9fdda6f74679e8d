"""`deepopsctl logs`: node logs, from the monitoring host that collects them."""

from __future__ import annotations

from typing import Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import complete_nodes, json_option, long_connection_options, names_nodes
from deepopsctl.model.json_objects import LogsObject


@click.command()
@click.argument(
    "nodes", nargs=-1, required=True, callback=names_nodes, shell_complete=complete_nodes, metavar="NODES..."
)
@click.option("-u", "--unit", "units", multiple=True, metavar="UNIT", help="Only this systemd unit: slurmd.")
@click.option("--since", default="", metavar="TIME", help="Only newer entries: '2026-11-22 10:00', -1h, today.")
@click.option("--until", default="", metavar="TIME", help="Only older entries.")
@click.option("-p", "--priority", default="", metavar="PRIORITY", help="Only this priority or higher: err, warning.")
@click.option("-n", "--lines", type=click.IntRange(min=1), metavar="NUMBER", help="Only the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive, until Ctrl-C.")
@long_connection_options
@json_option
@click.pass_obj
def logs(settings: Settings, /, *, nodes: tuple[str, ...], lines: int | None, as_json: bool, **options: Any) -> int:
    """Show the collected logs of NODES, also while they are down: journalctl on the monitoring host."""
    import io
    import sys

    from deepopsctl.cli.output import emit_json, info
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import select_nodes
    from deepopsctl.model.json_objects import SCHEMA
    from deepopsctl.status.journals import Question, lines_of, log_host, pass_on, ssh_command
    from deepopsctl.text.node_sets import fold

    if as_json and options["follow"]:
        raise click.UsageError("--json and --follow exclude each other: --json prints one object at the end")
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    selected = select_nodes(nodes, cluster)
    limits = {name: options[name] for name in ("units", "since", "until", "priority", "follow")}
    question = Question(lines=lines or 0, objects=as_json, **limits)
    login = ask_login(options)
    buffer = io.BytesIO()
    try:
        out = buffer if as_json else sys.stdout.buffer
        with ssh_command(directory, cluster, selected, question, login) as command:
            code, some = pass_on(command.argv, out, command.data)
    except KeyboardInterrupt:
        if options["follow"]:
            # how following ends
            return 0
        raise
    host = log_host(cluster).name
    _refuse(code, host)
    if as_json:
        entries = lines_of(buffer.getvalue())
        document: LogsObject = {
            "schema": SCHEMA, "command": "logs", "ok": True, "collected_on": host, "lines": entries
        }  # fmt: skip
        emit_json(document)
    elif not some:
        info(f"{host} has no such log entries of {fold(node.name for node in selected)}")
    return 0


def _refuse(code: int, host: str) -> None:
    from deepopsctl.errors import DeepOpsError, UnreachableError
    from deepopsctl.status.journals import NOTHING_COLLECTED

    if code == NOTHING_COLLECTED:
        hint = "`deepopsctl deploy monitoring` makes it collect them (docs/operate/logs.md)"
        raise DeepOpsError(f"{host} has collected no logs yet: monitoring is not deployed there", hint)
    if code == 255:
        raise UnreachableError(f"{host}, which collects the journals, can't be reached", "see `deepopsctl ssh setup`")
    if code:
        raise DeepOpsError(
            f"journalctl on {host} ended with code {code}",
            "on the node: `journalctl -t systemd-journal-upload` (docs/operate/logs.md)",
        )
