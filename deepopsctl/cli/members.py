"""`deepopsctl node add`, `remove` and `replace`: the verbs that change which machines a cluster has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from deepopsctl.cli import Settings
from deepopsctl.cli.options import json_option, names_nodes, seconds

F = TypeVar("F", bound=Callable[..., object])


def _login_options(function: F) -> F:
    """How a machine is logged in to for the first time."""
    for option in (
        click.option(
            "--identity",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="A private key that may log in already.  [default: your own keys and agent]",
        ),
        click.option(
            "--password-file",
            type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
            help="Read the SSH password from the first line of this file (0600), - for stdin.",
        ),
        click.option(
            "-k", "--ask-pass", is_flag=True, help="Ask for the SSH password at once, whatever keys there are."
        ),
    ):
        function = option(function)
    return function


_sudo_option = click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password.")
_yes_option = click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
_confirm_option = click.option(
    "--confirm", default="", metavar="NAME", help="The cluster's name, where cluster.yml says `protected: true`."
)
_wait_option = click.option(
    "--timeout", callback=seconds, default="1h", show_default=True, metavar="DURATION",
    help="How long to wait for running jobs: 90s, 30m, 2h, 1d.",
)  # fmt: skip


@click.command(short_help="Add machines; they take jobs once they are validated.")
@click.argument("names", callback=names_nodes, metavar="NAMES[=ADDRESSES]")
@click.option("--like", default="", metavar="NODE", help="Same roles, GPUs, features and partitions as this node.")
@click.option("--gpus", metavar="TYPE:COUNT", help="GPUs of each, or none.  [default: as the nodes they resemble]")
@click.option("--features", metavar="LIST", help="Slurm features, by commas.  [default: as the nodes they resemble]")
@click.option("--partition", multiple=True, metavar="NAME", help="Their partitions.  [default: those of --like]")
@_login_options
@_sudo_option
@_yes_option
@json_option
@click.pass_obj
def add(settings: Settings, /, names: str, *, as_json: bool, **given: Any) -> int:
    """Add machines: cluster.yml, SSH, deploy, validate, then jobs. Other compute nodes are left alone.

    What is not said is taken from the nodes with such a name (gpu03 is like gpu02). Run it again after a failure: it
    goes on where it was stopped. No job starts on a node before its validation has passed.
    """
    from deepopsctl.cli.console import open_console, show_report
    from deepopsctl.membership.add import add as add_members
    from deepopsctl.membership.newcomers import Wish

    console, directory, base = open_console(settings, "node-add", given)
    wish = Wish(names, given["gpus"], given["features"], given["like"], given["partition"])
    with console.attentive():
        report = add_members(directory, wish, base, console)
    return show_report(report, directory, as_json=as_json)


@click.command(short_help="Remove machines, after their last job.")
@click.argument("names", callback=names_nodes, metavar="NAMES")
@_wait_option
@click.option("--force", is_flag=True, help="Cancel the jobs that run there instead of waiting for them.")
@_sudo_option
@_yes_option
@_confirm_option
@json_option
@click.pass_obj
def remove(settings: Settings, /, names: str, *, as_json: bool, **given: Any) -> int:
    """Remove machines: drain, wait for their jobs, stop the services, take them out of everything.

    Nothing is removed while a job runs there. Machines that do not answer are removed with a warning.
    """
    from deepopsctl.cli.console import open_console, show_report
    from deepopsctl.membership.emptying import Leave
    from deepopsctl.membership.remove import remove as remove_members

    console, directory, base = open_console(settings, "node-remove", given)
    with console.attentive():
        report = remove_members(directory, Leave(names, given["timeout"], force=given["force"]), base, console)
    return show_report(report, directory, as_json=as_json)


@click.command(short_help="Let another machine take over a name.")
@click.argument("name", callback=names_nodes, metavar="NAME")
@click.option("--address", default="", metavar="ADDRESS", help="The new machine's address.  [default: the old one's]")
@_wait_option
@_login_options
@_sudo_option
@_yes_option
@_confirm_option
@json_option
@click.pass_obj
def replace(settings: Settings, /, name: str, *, as_json: bool, **given: Any) -> int:
    """Let another machine take over a name: new host key, hardware looked at anew, deploy, validate, then jobs."""
    from deepopsctl.cli.console import open_console, show_report
    from deepopsctl.membership.replace import Exchange
    from deepopsctl.membership.replace import replace as replace_member

    console, directory, base = open_console(settings, "node-replace", given)
    with console.attentive():
        report = replace_member(directory, Exchange(name, given["address"], given["timeout"]), base, console)
    return show_report(report, directory, as_json=as_json)
