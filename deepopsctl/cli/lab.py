"""`deepopsctl lab`: a throw-away cluster of containers on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from deepopsctl.cli.options import json_option
from deepopsctl.cli.output import SCHEMA, emit_json, say

name_option = click.option(
    "--name", default="lab", show_default=True, help="Which lab; several can run side by side."
)


@click.group()
def lab() -> None:
    """A throw-away cluster of systemd containers on this machine."""


@lab.command()
@name_option
@click.option(
    "--compute", type=click.IntRange(1, 150), default=2, show_default=True, help="Compute nodes, at least."
)
@click.option(
    "--login", type=click.IntRange(0, 80), default=0, show_default=True, help="Login nodes, at least."
)
@click.option(
    "--os",
    "os_name",
    type=click.Choice(["debian12", "debian13", "sid"]),
    help="The nodes' system.  [default: debian13]",
)
@click.option(
    "--gpus", metavar="TYPE:COUNT", help="Simulated GPUs on every compute node, for example h100:2."
)
@click.option("--sudo-password", is_flag=True, help="sudo on the nodes asks for the password (to try -K).")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the node list here.")
@click.option("--rebuild", is_flag=True, help="Build the node image anew.")
@json_option
def up(
    name: str,
    compute: int,
    login: int,
    os_name: str | None,
    gpus: str | None,
    *,
    sudo_password: bool,
    output: Path | None,
    rebuild: bool,
    as_json: bool,
) -> None:
    """Start a lab, or add nodes to one; prints the path of its node list.

    Running nodes are left alone, so a larger --compute adds nodes to a lab that is in use.
    """
    from deepopsctl.lab import cluster, layout
    from deepopsctl.lab.state import LabStore

    try:
        wanted_gpus = layout.parse_gpus(gpus) if gpus else None
    except ValueError as err:
        raise click.BadParameter(str(err), param_hint="--gpus") from err
    request = layout.LabRequest(name, compute, login, os_name or "", wanted_gpus, sudo_password)
    made = cluster.up(LabStore.default(), request, say, output=output, rebuild=rebuild)
    say(f"lab {made.name!r} ({made.os}) is up after {made.elapsed_s:.1f} s")
    for node, address in made.nodes:
        say(f"  {node.name:<9} {address:<15} {node.role}")
    say("next:")
    say(f"  deepopsctl init DIR --from {made.node_list}")
    say(f"  deepopsctl -C DIR ssh setup --password-file {made.password_file}")
    say("  deepopsctl -C DIR deploy")
    say("  deepopsctl -C DIR validate")
    if not as_json:
        click.echo(made.node_list)
        return
    emit_json(
        {
            "schema": SCHEMA,
            "command": "lab up",
            "ok": True,
            "name": made.name,
            "os": made.os,
            "nodes": [{"name": n.name, "address": a, "roles": [str(n.role)]} for n, a in made.nodes],
            "node_list": str(made.node_list),
            "password_file": str(made.password_file),
            "elapsed_s": round(made.elapsed_s, 2),
        }
    )


@lab.command()
@name_option
@click.option("--all", "every", is_flag=True, help="Every lab of this machine.")
@click.option("--images", is_flag=True, help="The cached node images as well.")
def down(name: str, *, every: bool, images: bool) -> None:
    """Remove a lab: containers, network, files. A lab that is not there is no error."""
    from deepopsctl.lab import cluster
    from deepopsctl.lab.image import remove_images
    from deepopsctl.lab.state import LabStore

    store = LabStore.default()
    for one in cluster.status(store) if every else [name]:
        count = cluster.down(store, one)
        say(f"lab {one!r} is gone ({count} nodes)" if count else f"there is no lab {one!r}")
    if images:
        removed, kept = remove_images()
        for image in removed:
            say(f"removed image {image}")
        for image in kept:
            say(f"image {image} is in use by another lab and stays")


@lab.command()
@click.option("--name", help="Only this lab.")
@json_option
def status(name: str | None, *, as_json: bool) -> None:
    """The labs of this machine and their nodes."""
    from deepopsctl.errors import InputError
    from deepopsctl.lab import cluster
    from deepopsctl.lab.state import LabStore

    labs = cluster.status(LabStore.default())
    if name is not None:
        if name not in labs:
            raise InputError.single(
                "--name", f"there is no lab {name!r}", f"labs here: {', '.join(labs) or 'none'}"
            )
        labs = {name: labs[name]}
    if as_json:
        emit_json(
            {
                "schema": SCHEMA,
                "command": "lab status",
                "ok": True,
                "labs": [
                    {
                        "name": n,
                        "os": r.os if r else "",
                        "nodes": [{"name": c.node, "address": c.address, "state": c.state} for c in cs],
                    }
                    for n, (r, cs) in labs.items()
                ],
            }
        )
        return
    for lab_name, (record, containers) in labs.items():
        click.echo(f"{lab_name} ({record.os if record else 'unfinished'})")
        for container in containers:
            click.echo(f"  {container.node:<9} {container.address:<15} {container.state}")
    if not labs:
        say("no labs")
