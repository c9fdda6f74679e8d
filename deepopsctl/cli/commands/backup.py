"""`deepopsctl backup`: make, list and verify backups of the accounting, of slurmctld's state, and of monitoring."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import connection_options, json_option
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.lifecycle.backup import Answer
    from deepopsctl.model.json_objects import BackupsObject


@click.group()
def backup() -> None:
    """Back up the accounting database and slurmctld's state, and the data of monitoring if asked.

    A timer on the nodes does so as well (docs/operate/backup.md).
    """


@backup.command("run", short_help="Make a backup now.")
@connection_options
@json_option
@click.pass_obj
def make_backup(settings: Settings, /, *, as_json: bool, **options: Any) -> int:
    """Make a backup now, and read it back from the repository."""
    from deepopsctl.cli.output import info
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.backup import run_backup
    from deepopsctl.text.answers import texts

    answers, error = run_backup(ClusterDir.open(settings.directory), ask_login(options))
    for answer in answers:
        made = answer.result
        what = " and ".join(texts(made["parts"]))
        info(f"{answer.node}: {what} saved as {made['snapshot']}, {_size(made['bytes'])}, read back whole")
    if error:
        raise error
    return _end("backup run", answers, as_json=as_json)


@backup.command("list", short_help="Show the backups in the repository.")
@connection_options
@json_option
@click.pass_obj
def list_(settings: Settings, /, *, as_json: bool, **options: Any) -> int:
    """Show the backups in the repository, the newest first."""
    from deepopsctl.cli.output import info, show, table
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.backup import list_backups, snapshots_of
    from deepopsctl.text.answers import texts

    answers, error = list_backups(ClusterDir.open(settings.directory), ask_login(options))
    rows = [
        [str(each["id"]), str(each["time"])[:19].replace("T", " "), str(each["host"]), " + ".join(texts(each["parts"]))]
        for each in snapshots_of(answers)
    ]
    if not as_json:
        for line in table(["snapshot", "time", "node", "what"], rows):
            show(line)
        if not rows and not error:
            info("no backup yet: `deepopsctl backup run` makes one")
    if error:
        raise error
    return _end("backup list", answers, as_json=as_json)


@backup.command(short_help="Restore a backup into a throw-away Slurm.")
@click.argument("snapshot", default="")
@connection_options
@json_option
@click.pass_obj
def verify(settings: Settings, /, *, snapshot: str, as_json: bool, **options: Any) -> int:
    """Restore SNAPSHOT (default: the newest) into a throw-away Slurm on the controller, cut off from the nodes.

    MariaDB, slurmdbd and slurmctld start on the copy; jobs and rows are compared with what was saved. The real ones
    run on. The data of Prometheus and Grafana is read on the monitoring host.
    """
    from deepopsctl.cli.output import info
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.backup import verify_backup

    answers, error = verify_backup(ClusterDir.open(settings.directory), snapshot, ask_login(options))
    for answer in answers:
        info(f"{answer.node}: the backup of {str(answer.result['time'])[:19]} can be restored: {_has(answer.result)}")
    if error:
        raise error
    return _end("backup verify", answers, as_json=as_json)


def _has(result: dict[str, Any]) -> str:
    from deepopsctl.text.answers import mapping, number

    rows = mapping(result.get("rows"))
    parts = [f"{sum(map(number, rows.values())):,} rows of accounting"] if rows else []
    parts += [f"{amount(int(result['jobs']), 'job')} in the queue"] if "jobs" in result else []
    if "samples" in result:
        parts.append(f"{result['samples']:,} samples of Prometheus in {result['blocks']} blocks")
        parts += ["Grafana's database"] if result["grafana"] else []
    return ", ".join(parts)


def _end(command: str, answers: tuple[Answer, ...], *, as_json: bool) -> int:
    from deepopsctl.cli.output import emit_json
    from deepopsctl.model.json_objects import SCHEMA

    if as_json:
        nodes: list[dict[str, object]] = [
            {"node": answer.node, **{key: value for key, value in answer.result.items() if key != "schema"}}
            for answer in answers
        ]
        at = datetime.now(UTC).isoformat()
        document: BackupsObject = {"schema": SCHEMA, "command": command, "ok": True, "at": at, "nodes": nodes}
        emit_json(document)
    return 0


def _size(value: object) -> str:
    size = float(str(value))
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
