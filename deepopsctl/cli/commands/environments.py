"""`deepopsctl environments`: environments of Python packages that users load as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import confirm_option, connection_options, json_option
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.ssh_login import Login
    from deepopsctl.environment.environments import Environment, Lock
    from deepopsctl.model.json_objects import EnvironmentEntry, EnvironmentsObject, LockedObject

PLAYBOOK = "operate/users/environments-remove"


@click.group()
def environments() -> None:
    """Lock, list and remove environments of Python packages; `deploy environment` builds them on the nodes."""


@environments.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@connection_options
@json_option
@click.pass_obj
def lock(settings: Settings, /, names: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Choose the newest wheels for NAME, or for all of `environments`, and write them down as a new version.

    The locks are in environments/NAME of the cluster directory, with a hash for each wheel. Nodes are not changed: the
    next `deploy environment` builds what is new, next to the versions before.
    """
    from deepopsctl.cli.output import emit_json
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.model.json_objects import SCHEMA

    directory = ClusterDir.open(settings.directory)
    made = lock_all(settings, directory, _chosen(_declared(directory), names), ask_login(options))
    if as_json:
        modules = [one.module for one in made]
        locked: LockedObject = {"schema": SCHEMA, "command": "environments lock", "ok": True, "locked": modules}
        emit_json(locked)
    return 0


@environments.command("list")
@json_option
@click.pass_obj
def list_environments(settings: Settings, /, *, as_json: bool) -> int:
    """List the versions that have a lock, with the default of each environment."""
    from deepopsctl.cli.output import emit_json, show, table
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.environment.environments import default_of, read_locks
    from deepopsctl.model.json_objects import SCHEMA

    directory = ClusterDir.open(settings.directory)
    declared, locks = _declared(directory), read_locks(directory.path)
    defaults = {name: default_of(each, locks) for name, each in declared.items()}
    if as_json:
        entries: list[EnvironmentEntry] = [
            {
                "name": each.name, "version": each.version, "default": defaults.get(each.name) == each.version,
                "declared": each.name in declared, "python": each.target.python, "packages": list(each.packages),
                "wheels": len(each.wheels),
            }
            for each in locks
        ]  # fmt: skip
        document: EnvironmentsObject = {
            "schema": SCHEMA, "command": "environments list", "ok": True, "environments": entries,
        }  # fmt: skip
        emit_json(document)
        return 0
    rows = [
        [each.module, _note(each, defaults), each.target.python, str(len(each.wheels)), ", ".join(each.packages)]
        for each in locks
    ]
    for line in table(["module", "", "python", "wheels", "packages"], rows, ()):
        show(line)
    return 0


@environments.command()
@click.argument("modules", nargs=-1, required=True, metavar="NAME/VERSION...")
@confirm_option
@connection_options
@json_option
@click.pass_obj
def remove(settings: Settings, /, modules: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Delete versions from the nodes, and their locks; refused while a job or a process uses one.

    The default of a declared environment is not removed: lock a new version, or take it out of `environments`.
    """
    from deepopsctl.cli.execute import run_and_report, run_request
    from deepopsctl.cli.interactive import confirm_protected
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.environment.environments import read_locks, removable, remove_locks

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    confirm_protected(f"delete {', '.join(modules)} from the nodes of {cluster.name}?", cluster, options["confirm"])
    chosen = removable(modules, _declared(directory), read_locks(directory.path))
    versions = [dict(zip(("name", "version"), each.split("/"), strict=True)) for each in chosen]
    request = run_request(
        settings, directory, options, (PLAYBOOK,), component="environments", command="environments-remove",
        extra_vars={"deepops_removed_environments": versions},
    )  # fmt: skip
    hosts = tuple(node.name for node in cluster.nodes)
    code = run_and_report(request, hosts, verbosity=settings.verbosity, as_json=as_json)
    if code == 0:
        remove_locks(directory.path, chosen)
    return code


def lock_outdated(settings: Settings, directory: ClusterDir, login: Login) -> None:
    """Lock the environments that have no version of what the setting lists: before a deploy builds them."""
    from deepopsctl.environment.environments import is_outdated, read_locks

    declared = _declared(directory)
    locks = read_locks(directory.path) if declared else []
    outdated = [each for each in declared.values() if is_outdated(each, locks)]
    if outdated:
        lock_all(settings, directory, outdated, login)


def lock_all(settings: Settings, directory: ClusterDir, chosen: Sequence[Environment], login: Login) -> list[Lock]:
    """Lock these environments; returns the new versions."""
    import os
    from dataclasses import replace

    from deepopsctl.cli.commands.wheels import node_python
    from deepopsctl.cli.output import info
    from deepopsctl.content import content_dir
    from deepopsctl.environment import environments as core
    from deepopsctl.gpus.wheels import cache_directory

    if not chosen:
        return []
    node, target = node_python(directory, login)
    installer, cache = core.installer_of(content_dir(settings.content)), cache_directory(os.environ)
    known, made = core.read_locks(directory.path), []
    for each in chosen:
        wanted = replace(target, python=each.python or target.python)
        info(f"{each.name}: fetching wheels for Python {wanted.python} on {target.machine}, as {node} has it")
        new = core.make_lock(each, wanted, installer, [one for one in known if one.name == each.name], cache)
        if new is None:
            info(f"{each.name}: the newest version has the same wheels")
            continue
        core.save_lock(directory.path, new)
        made.append(new)
        info(f"{new.module}: {amount(len(new.wheels), 'wheel')}, {core.size_of(new, cache) / 2**20:.0f} MiB")
    return made


def _declared(directory: ClusterDir) -> dict[str, Environment]:
    from deepopsctl.cluster.settings import site_values
    from deepopsctl.environment.environments import SETTING, declared

    return declared(site_values(directory).get(SETTING, {}))


def _chosen(declared: dict[str, Environment], names: tuple[str, ...]) -> list[Environment]:
    from deepopsctl.text.values import suggest

    for name in names:
        if name not in declared:
            hint = suggest(name, list(declared)) if declared else "declare it under `environments:` in settings.yml"
            raise click.UsageError(f"there is no environment {name}; {hint}")
    return [declared[name] for name in names or declared]


def _note(lock: Lock, defaults: dict[str, str]) -> str:
    if lock.name not in defaults:
        return "not declared"
    return "default" if defaults[lock.name] == lock.version else ""
