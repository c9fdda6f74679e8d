"""`deepopsctl logs`: journals of nodes, from the machine that collects them."""

from __future__ import annotations

from typing import Any

import click

from deepopsctl.cli import Settings


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODES...")
@click.option("-u", "--unit", "units", multiple=True, metavar="UNIT", help="Only of this systemd unit: slurmd.")
@click.option("--since", default="", metavar="TIME", help="Only what is newer: '2026-11-22 10:00', -1h, today.")
@click.option("--until", default="", metavar="TIME", help="Only what is older.")
@click.option("-p", "--priority", default="", metavar="PRIORITY", help="Only of this priority or worse: err, warning.")
@click.option("-n", "--lines", type=click.IntRange(min=1), metavar="NUMBER", help="Only the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines as they come, until Ctrl-C.")
@click.pass_obj
def logs(settings: Settings, /, *, nodes: tuple[str, ...], lines: int | None, **given: Any) -> int:
    """What NODES have logged, also while they are down: journalctl on the monitoring host, with its options."""
    import subprocess

    from deepopsctl.clusterdir import ClusterDir
    from deepopsctl.collectedlogs import Question, log_host, ssh_command
    from deepopsctl.errors import DeepOpsError, UnreachableError
    from deepopsctl.nodeselect import select_nodes

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    command = ssh_command(directory, cluster, select_nodes(nodes, cluster), Question(lines=lines or 0, **given))
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except KeyboardInterrupt:
        # how following ends
        return 0
    host = log_host(cluster).name
    if code == 255:
        raise UnreachableError(f"{host}, which collects the journals, can't be reached", "see `deepopsctl ssh setup`")
    if code:
        raise DeepOpsError(
            f"journalctl on {host} ended with code {code}",
            "journals are collected where monitoring is deployed, with monitoring_enabled and monitoring_logs; where "
            "it is: `journalctl -t systemd-journal-upload` on the node (docs/how-to/logs.md)",
        )
    return 0
