"""`deepopsctl lab`: a disposable cluster of containers on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING

import click

from deepopsctl.cli.options import json_option
from deepopsctl.cli.output import emit_json, info
from deepopsctl.errors import ControlMachineError, DeepOpsError, InputError
from deepopsctl.model.json_objects import SCHEMA
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.lab.create import Lab
    from deepopsctl.lab.manage import LabStatus
    from deepopsctl.model.cluster import Gpus
    from deepopsctl.model.json_objects import LabEntry, LabStatusObject, LabUpObject

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# what a command reads of its environment; sudo drops all of it
ENVIRONMENT = ("DEEPOPSCTL_LAB_", "XDG_STATE_HOME=", "NO_COLOR=", "TERM=", "LANG=", "LC_")
SYSTEMS = ("debian12", "debian13", "sid")

name_option = click.option("--name", default="lab", show_default=True, help="Which lab; several can run side by side.")


@click.group()
def lab() -> None:
    """Run a disposable cluster of systemd containers on this machine, with podman as root (through sudo if needed)."""


@lab.command(short_help="Start a lab, or add nodes to one.")
@name_option
@click.option("--compute", type=click.IntRange(1, 150), default=2, show_default=True, help="Compute nodes, at least.")
@click.option("--single", is_flag=True, help="One node that is controller and compute node; --compute is ignored.")
@click.option("--login", type=click.IntRange(0, 80), default=0, show_default=True, help="Login nodes, at least.")
@click.option("--os", "system", type=click.Choice(SYSTEMS), help="The nodes' system.  [default: debian13]")
@click.option("--gpus", metavar="TYPE:COUNT", help="Simulated GPUs of each compute node, for example h100:2.")
@click.option("--monitoring", is_flag=True, help="A deploy in this lab installs Prometheus and monitoring, too.")
@click.option("--sudo-password", is_flag=True, help="sudo on the nodes asks for the password (to test -K).")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the node list here.")
@click.option("--rebuild", is_flag=True, help="Rebuild the node image even if there is one.")
@json_option
def up(
    *,
    name: str,
    compute: int,
    single: bool,
    login: int,
    system: str | None,
    gpus: str | None,
    monitoring: bool,
    sudo_password: bool,
    output: Path | None,
    rebuild: bool,
    as_json: bool,
) -> None:
    """Start a lab, or add nodes to one; prints the path of its node list.

    Running nodes are not changed: a larger --compute adds nodes to a lab in use, stopped nodes are started.
    """
    from deepopsctl.lab import create as lab_up
    from deepopsctl.lab.layout import LabRequest
    from deepopsctl.lab.state import LabStore

    if single and login:
        raise click.UsageError("--single is one node: it has no login nodes")
    request = LabRequest(name, compute, login, system or "", _parse_gpus(gpus), sudo_password, single, monitoring)
    _become_root()
    with _orderly_interrupt():
        made = lab_up.up(LabStore.default(), request, info, output=output, rebuild=rebuild)
    _describe(made)
    if as_json:
        emit_json(_up_object(made))
    else:
        click.echo(made.node_list)


@lab.command()
@name_option
@click.option("--all", "every", is_flag=True, help="Remove every lab of this machine, also those of other users.")
@click.option("--images", is_flag=True, help="Remove the cached node images, too.")
def down(*, name: str, every: bool, images: bool) -> None:
    """Remove a lab: containers, network, files. No such lab is not an error."""
    from deepopsctl.lab import manage
    from deepopsctl.lab.image import remove_images
    from deepopsctl.lab.state import LabStore

    _become_root()
    store = LabStore.default()
    refusals: list[DeepOpsError] = []
    for lab_name in [each.name for each in manage.status(store)] if every else [name]:
        try:
            count = manage.down(store, lab_name)
        except DeepOpsError as refusal:
            refusals.append(refusal)
        else:
            info(f"lab {lab_name!r} is gone ({amount(count, 'node')})" if count else f"there is no lab {lab_name!r}")
    if images:
        removed, in_use = remove_images()
        for image in removed:
            info(f"image {image} is gone")
        for image in in_use:
            info(f"image {image} is in use by another lab and stays")
    if refusals:
        raise refusals[0]


@lab.command()
@click.option("--name", help="Only this lab.")
@json_option
def status(*, name: str | None, as_json: bool) -> None:
    """Show the labs of this machine and their nodes."""
    from deepopsctl.lab import manage
    from deepopsctl.lab.state import LabStore

    _become_root()
    labs = manage.status(LabStore.default())
    if name is not None:
        names = ", ".join(one.name for one in labs) or "none"
        labs = tuple(one for one in labs if one.name == name)
        if not labs:
            raise InputError.single("--name", f"there is no lab {name!r}", f"labs here: {names}")
    if as_json:
        rows = [_status_object(one) for one in labs]
        document: LabStatusObject = {"schema": SCHEMA, "command": "lab status", "ok": True, "labs": rows}
        emit_json(document)
        return
    for one in labs:
        _print_status(one)
    if not labs:
        info("no labs; `deepopsctl lab up` starts one")


def _become_root() -> None:
    """Run this command again as root through sudo, on the user's files: only root's containers are reachable."""
    from deepopsctl.lab.state import LabStore

    if os.geteuid() == 0:
        return
    if not shutil.which("sudo"):
        raise ControlMachineError("the lab needs root, and sudo is not installed", "run this command as root")
    root = LabStore.default().root
    # made here, not by root: the owner of this directory gets the files of every lab
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    passed_on = [
        word for word in (f"{name}={value}" for name, value in os.environ.items()) if word.startswith(ENVIRONMENT)
    ]
    # no compiled files of root's in the user's checkout
    own = (f"XDG_STATE_HOME={root.parents[1]}", "PYTHONDONTWRITEBYTECODE=1")
    sys.stdout.flush()
    os.execvp("sudo", ["sudo", "--", "env", *passed_on, *own, sys.executable, *sys.argv])  # noqa: S606 (this very command, as root)


@contextmanager
def _orderly_interrupt() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or hang-up undoes what was begun; later ones are ignored meanwhile."""
    # what is ignored from outside (nohup) stays so
    caught = [number for number in INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        for number in caught:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    earlier = {number: signal.signal(number, interrupt) for number in caught}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _parse_gpus(text: str | None) -> Gpus | None:
    from deepopsctl.lab.layout import parse_gpus

    try:
        return parse_gpus(text) if text else None
    except ValueError as err:
        raise click.BadParameter(str(err), param_hint="--gpus") from err


def _describe(made: Lab) -> None:
    info(f"lab {made.name!r} ({made.os}) is up after {made.elapsed_s:.1f} s")
    for node, address in made.nodes:
        gpus = f"{node.gpus.count} x {node.gpus.type}, simulated" if node.gpus else ""
        info(f"  {node.name:<8} {address:<15} {', '.join(node.roles):<11} {gpus}".rstrip())
    info("next:")
    info(f"  deepopsctl init DIR --from {quote(str(made.node_list))}")
    info(f"  deepopsctl -C DIR ssh setup --password-file {quote(str(made.password_file))}")
    info("  deepopsctl -C DIR deploy")
    info("  deepopsctl -C DIR validate")


def _up_object(made: Lab) -> LabUpObject:
    return {
        "schema": SCHEMA,
        "command": "lab up",
        "ok": True,
        "name": made.name,
        "os": made.os,
        "nodes": [
            {"name": node.name, "address": address, "roles": [str(role) for role in node.roles]}
            for node, address in made.nodes
        ],
        "added": list(made.added),
        "node_list": str(made.node_list),
        "password_file": str(made.password_file),
        "elapsed_s": round(made.elapsed_s, 2),
    }


def _status_object(one: LabStatus) -> LabEntry:
    return {
        "name": one.name,
        "os": one.os,
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "roles": list(node.roles),
                "gpus": {"type": node.gpus.type, "count": node.gpus.count} if node.gpus else None,
                "state": node.state,
            }
            for node in one.nodes
        ],
        "node_list": str(one.node_list or ""),
        "password_file": str(one.password_file or ""),
    }


def _print_status(one: LabStatus) -> None:
    click.echo(f"{one.name} ({one.os or 'unfinished, or another user’s'})")
    for node in one.nodes:
        click.echo(f"  {node.name:<8} {node.address:<15} {', '.join(node.roles):<11} {node.state}")
    if one.node_list:
        click.echo(f"  node list: {one.node_list}")
