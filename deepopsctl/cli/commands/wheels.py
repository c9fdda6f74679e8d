"""`deepopsctl wheels`: the wheels that users install without the internet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import connection_options, json_option
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.ssh_login import Login
    from deepopsctl.environment.wheels import Target
    from deepopsctl.model.json_objects import WheelEntry, WheelsObject

PLAYBOOK = "operate/users/wheels"
_PATIENCE_S = 60


@click.group()
def wheels() -> None:
    """Fetch Python wheels for users, and list them; `pip install --no-index` finds them on the nodes."""


@wheels.command()
@click.argument("requirements", nargs=-1, metavar="[REQUIREMENT]...")
@click.option(
    "-r", "--requirement", "files", multiple=True, metavar="FILE", help="A file of requirements.",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
)  # fmt: skip
@click.option("--python", default="", metavar="VERSION", help="For this Python (3.12).  [default: the node's]")
@click.option("--no-deps", is_flag=True, help="Not what they need themselves.")
@connection_options
@json_option
@click.pass_obj
def add(settings: Settings, /, requirements: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Fetch wheels (`torch`, `'numpy<3'`) and copy them to the wheelhouse, the directory of `modules_wheels`.

    pip on the control machine fetches what fits the Python of the first login node or controller that answers. The
    hashes are kept in wheels.sha256; a wheel of the same name with another content is refused.

    `@pytorch`, `@jax`, `@rapids` and `@science` are sets of packages; their size is said before they are fetched.
    """
    from tempfile import TemporaryDirectory

    from deepopsctl.cli.execute import run_and_report, run_request
    from deepopsctl.cli.output import info
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.environment import wheels as wheelhouse
    from deepopsctl.environment.wheel_sets import expanded

    if not requirements and not options["files"]:
        raise click.UsageError("name a package, or a file of requirements")
    packages, notes = expanded(requirements)
    wanted = wheelhouse.checked(packages, options["files"])
    for text in notes:
        info(text)
    directory = ClusterDir.open(settings.directory)
    login = ask_login(options)
    node, target = node_python(directory, login)
    if options["python"]:
        target = replace(target, python=wheelhouse.check_python(options["python"]))
    with TemporaryDirectory(prefix="deepopsctl-wheels-") as fetched:
        paths = wheelhouse.fetch(wanted, target, Path(fetched), deps=not options["no_deps"])
        fetched_wheels = wheelhouse.described(paths)
        new = wheelhouse.add(directory.path, fetched_wheels)
        fetched_now = f"{amount(len(fetched_wheels), 'wheel')} for Python {target.python} on {target.machine}"
        info(f"{fetched_now}, {len(new)} of them new")
        variables = {"deepops_wheels": [each.file for each in fetched_wheels], "deepops_wheels_from": fetched}
        request = run_request(
            settings, directory, {}, (PLAYBOOK,), login, component="wheels", command="wheels-add", limit=node,
            extra_vars=variables,
        )  # fmt: skip
        return run_and_report(request, (node,), verbosity=settings.verbosity, as_json=as_json)


@wheels.command("list")
@json_option
@click.pass_obj
def list_wheels(settings: Settings, /, *, as_json: bool) -> int:
    """List the wheels that were added, with their hashes."""
    from deepopsctl.cli.output import emit_json, show, table
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.environment.wheels import read
    from deepopsctl.model.json_objects import SCHEMA

    listed = read(ClusterDir.open(settings.directory).path)
    if as_json:
        entries: list[WheelEntry] = [
            {"name": each.name, "version": each.version, "file": each.file, "sha256": each.sha256} for each in listed
        ]
        document: WheelsObject = {"schema": SCHEMA, "command": "wheels list", "ok": True, "wheels": entries}
        emit_json(document)
        return 0
    for line in table(["package", "version", "file"], [[each.name, each.version, each.file] for each in listed], ()):
        show(line)
    return 0


def node_python(directory: ClusterDir, login: Login) -> tuple[str, Target]:
    """The first login node or controller that answers, and what wheels for its Python have to fit."""
    from deepopsctl.cli.output import show_warning
    from deepopsctl.environment.wheels import QUESTION, Target
    from deepopsctl.errors import DeepOpsError, Problem, UnreachableError
    from deepopsctl.model.cluster import Role
    from deepopsctl.ssh.node_command import ask

    cluster = directory.cluster()
    nodes = {node.name: node for node in (*cluster.with_role(Role.LOGIN), *cluster.controllers)}
    for name, node in nodes.items():
        try:
            words = ["/usr/bin/python3", "-c", QUESTION]
            answer = ask(directory, cluster, node, words, timeout_s=_PATIENCE_S, login=login)
        except UnreachableError as error:
            show_warning(Problem("wheels", error.message, error.hint))
            continue
        if answer.status:
            raise DeepOpsError(f"{name}: {answer.reason}", "see `deepopsctl doctor`")
        return name, Target.read(answer.output)
    raise UnreachableError("no login node and no controller answers", "see `deepopsctl doctor`")
