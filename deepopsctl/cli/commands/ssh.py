"""`deepopsctl ssh`: passwordless SSH to all nodes, and a client configuration for the cluster's users."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import complete_nodes, json_option, limit_option, login_name, names_nodes, seconds_between
from deepopsctl.cli.output import emit_json, info, show, table
from deepopsctl.cli.passwords import read_passwords, terminable
from deepopsctl.model.json_objects import SCHEMA
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.model.json_objects import SshConfigObject
    from deepopsctl.ssh.results import NodeResult, SetupResult


@click.group()
def ssh() -> None:
    """Set up passwordless SSH to all nodes."""


@ssh.command(short_help="Install the SSH key, pin host keys, check logins and sudo.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Read the SSH password from the first line of this file (0600), - for stdin.",
)
@click.option("-k", "--ask-pass", is_flag=True, help="Ask for the SSH password at once, even if a key might work.")
@click.option(
    "--identity",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A private key that can log in already.  [default: your own keys and agent]",
)
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password, and test it.")
@click.option(
    "--accept-new-keys",
    metavar="NODESET",
    callback=names_nodes,
    shell_complete=complete_nodes,
    help="Accept the current host keys of these nodes, for example after a reinstallation.",
)
@click.option(
    "--controller-key/--no-controller-key",
    default=True,
    show_default=True,
    help="Let the first controller log in to all nodes with a key of its own.",
)
@limit_option
@click.option(
    "--connect-timeout",
    callback=seconds_between(1, 300),
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="How long until a node counts as unreachable.",
)
@json_option
@click.pass_obj
def setup(
    settings: Settings,
    *,
    password_file: Path | None,
    ask_pass: bool,
    identity: Path | None,
    ask_become_pass: bool,
    accept_new_keys: str | None,
    controller_key: bool,
    limit: str | None,
    connect_timeout: int,
    as_json: bool,
) -> None:
    """Install the cluster's SSH key on all nodes, pin their host keys, check logins and sudo.

    Asks for the password once, and only if no key is accepted. Run it again whenever nodes were added: what is
    up to date is not changed.
    """
    from deepopsctl.cli.views.run import show_next
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import select_names, select_nodes
    from deepopsctl.cluster.ssh_login import jump_names
    from deepopsctl.ssh.setup import SetupRequest, run_setup

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    nodes = select_nodes([limit], cluster, "--limit") if limit else cluster.nodes
    hops = jump_names(cluster.access.jump_host)
    new = select_names([accept_new_keys] if accept_new_keys else [], cluster, "--accept-new-keys", hops)
    user = cluster.access.user or "your own user"
    passwords = read_passwords(user, password_file, ask_pass=ask_pass, ask_become_pass=ask_become_pass)
    request = SetupRequest(
        directory, cluster, nodes, passwords.login, passwords.ask, not (ask_pass or password_file), identity,
        passwords.sudo, new, controller_key, connect_timeout,
    )  # fmt: skip
    info(f"ssh setup: {amount(len(nodes), 'node')} of {cluster.name} as {user}")
    with terminable():
        result = run_setup(request, counter(len(nodes)))
    _show(result, as_json=as_json)
    if not result.exit_code:
        show_next(directory, "doctor", "deploy")
    click.get_current_context().exit(result.exit_code)


@ssh.command(short_help="Print ~/.ssh/config for the cluster's users.")
@click.option(
    "--user",
    metavar="NAME",
    default="",
    callback=login_name,
    help="The login name on the cluster.  [default: the local one]",
)
@click.option("--known-hosts", is_flag=True, help="Print the nodes' host keys for ~/.ssh/CLUSTER.known_hosts instead.")
@json_option
@click.pass_obj
def config(settings: Settings, *, user: str, known_hosts: bool, as_json: bool) -> None:
    """Print an ~/.ssh/config section for the cluster's users: login nodes directly, other nodes through them."""
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.ssh.client_config import users_config, users_known_hosts
    from deepopsctl.ssh.host_keys import KnownHosts

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    text = users_known_hosts(cluster, KnownHosts(directory.known_hosts)) if known_hosts else users_config(cluster, user)
    if as_json:
        document: SshConfigObject = {"schema": SCHEMA, "command": "ssh config", "ok": True, "config": text}
        emit_json(document)
    else:
        click.echo(text, nl=False)


def counter(total: int) -> Callable[[NodeResult], None]:
    """On a terminal: a line that counts; else nothing until the table."""
    done: list[str] = []

    def note(result: NodeResult) -> None:
        done.append(result.name)
        if sys.stderr.isatty():
            # the table says it all at the end
            text = f"{len(done)}/{total} {result.name}" if len(done) < total else ""
            click.echo(f"\r{text:<50.50}\r", nl=False, err=True)

    return note


def _show(result: SetupResult, *, as_json: bool) -> None:
    from deepopsctl.ssh.results import HEADER, hints, result_object, summary_line, table_rows

    if not as_json:
        for line in table(HEADER, table_rows(result)):
            show(line)
    for warning in result.warnings:
        info(click.style("warning: ", fg="yellow") + warning)
    for hint in hints(result):
        info(click.style("hint: ", fg="cyan") + hint)
    info(summary_line(result))
    if as_json:
        emit_json(result_object(result))
