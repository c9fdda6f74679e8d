"""`deepopsctl secrets`: rotate the cluster's keys and passwords."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import complete_nodes, workflow_options

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir

WHAT = (
    "munge-key", "database-password", "monitoring-passwords", "backup-password", "authority", "signing-key",
    "bind-password",
)  # fmt: skip
# without a name
USUAL = WHAT[:2]


@click.group()
def secrets() -> None:
    """Rotate the cluster's keys and passwords in secrets.yml."""


@secrets.command(short_help="Replace the munge key and the database password; jobs keep running.")
@click.argument("what", nargs=-1, type=click.Choice(WHAT), metavar="[SECRET]...")
@click.option(
    "--exclude",
    multiple=True,
    metavar="NODES",
    shell_complete=complete_nodes,
    help="Nodes that are off: a later deploy gives them the new key.",
)
@click.option(
    "--password-file", type=click.Path(path_type=Path), metavar="FILE",
    help="bind-password: what the directory service has already, on the first line.",
)  # fmt: skip
@workflow_options
@click.pass_obj
def rotate(settings: Settings, /, what: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Replace the munge key and the password of the accounting database; or SECRET alone.

    SECRET is munge-key, database-password, monitoring-passwords (of Prometheus, Alertmanager and Grafana),
    backup-password, authority (certificates of exporters and logs), signing-key (of `packages`), or bind-password (of
    the directory service, where you change it first).

    Running jobs continue; slurmctld is stopped for some seconds while the nodes change their keys. If a node does not
    answer, nothing is changed. After a failure or an interruption, run it again: it resumes.
    """
    from deepopsctl.cli.interactive import open_console, run_workflow
    from deepopsctl.cluster.selection import select_nodes
    from deepopsctl.nodes.rotate_secrets import Rotation, Secret, rotate as rotate_secrets

    bind_password = _bind_password(what, options.pop("password_file"))
    console, directory, base = open_console(settings, "secrets-rotate", options)
    left_out = select_nodes(options["exclude"], directory.cluster(), "--exclude")
    wanted = frozenset(Secret(name) for name in what or USUAL)
    sign_again = _signer(directory) if Secret.SIGNING_KEY in wanted else None
    rotation = Rotation(wanted, left_out, bind_password, sign_again)
    return run_workflow(rotate_secrets, rotation, base, console, as_json=as_json)


def _bind_password(what: tuple[str, ...], file: Path | None) -> str:
    from deepopsctl.ssh.passwords import read_password

    if "bind-password" not in what:
        return ""
    if file is None:
        return str(click.prompt("New bind password, as the directory service has it", hide_input=True, err=True))
    return read_password(file)


def _signer(directory: ClusterDir) -> Callable[[], None]:
    """What signs the served packages again; refused here where one of them is not on this machine."""
    from deepopsctl.lifecycle.package_build import BuildStore
    from deepopsctl.lifecycle.package_repository import PackageRepository

    return PackageRepository(directory).new_key(BuildStore.of_user(os.environ).builds())
