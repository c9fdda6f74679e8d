"""`deepopsctl packages`: packages built once, and served to the nodes from a signed repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import complete_nodes, connection_options, json_option
from deepopsctl.cli.output import emit_json, info, show, table
from deepopsctl.model.json_objects import SCHEMA
from deepopsctl.slurm.package_choice import SYSTEMS
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.build_host import BuildHost
    from deepopsctl.lifecycle.package_build import Build, BuildStore
    from deepopsctl.lifecycle.package_sources import Source
    from deepopsctl.model.json_objects import AddedObject, BuildEntry, BuildsObject, BuiltObject

_system_option = click.option(
    "--for", "system", type=click.Choice(tuple(SYSTEMS.values())), required=True, help="The nodes' system."
)


@click.group()
def packages() -> None:
    """Build packages once, and serve them to the nodes from a signed repository."""


@packages.command()
@click.argument("name")
@click.option("--release", default="", metavar="RELEASE", help="Release of Slurm, such as 26.05, or a version.")
@_system_option
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="SUITE",
    help="Suite with the source.  [default: the nodes' own or a later one]",
)
@click.option("--mirror", default="", metavar="URL", help="Mirror of Debian.  [default: this machine's]")
@click.option("--source", default="", metavar="FILE|URL", help="A release tarball in place of Debian's source package.")
@click.option("--sha256", default="", metavar="SUM", help="Checksum of --source.")
@click.option(
    "--packaging", default="", metavar="FILE|URL", help="Tarball of debian/ for --source.  [default: its own]"
)
@click.option("--packaging-sha256", default="", metavar="SUM", help="Checksum of --packaging.")
@click.option(
    "--on",
    "node",
    default="",
    metavar="NODE",
    shell_complete=complete_nodes,
    help="Build on this node.  [default: this machine]",
)
@click.option(
    "--without", multiple=True, metavar="FEATURE",
    help="Do without: nvml, pmix, pam, rest, lua, jwt, cgroup-v2, accounting.",
)  # fmt: skip
@connection_options
@json_option
@click.pass_obj
def build(settings: Settings, /, name: str, *, as_json: bool, **options: Any) -> None:
    """Build the packages of NAME (`slurm`, `pyxis`) in a clean root, and add them to the cluster's repository.

    Nothing is built where the inputs are those of an earlier build. A deploy installs the packages where settings.yml
    has `slurm_install: repository`, those of `pyxis` where `environment_containers` has it: they are built against
    the Slurm that the nodes get, of sources that `environment_pyxis` names.
    """
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.package_build import BuildStore
    from deepopsctl.slurm.package_choice import PYXIS

    directory = ClusterDir.open(settings.directory)
    host = _host(directory, options)
    store = BuildStore.of_user(os.environ)
    make = _build_pyxis if name == PYXIS else _build
    made, is_new, suite, changed = make(name, directory, store, host, options)
    info(f"built {made.text('version')}" if is_new else f"{made.text('version')} is built already, of the same inputs")
    info(f"repository {suite} {'updated' if changed else 'unchanged'}; inputs and versions: {made.directory}")
    if as_json:
        document: BuiltObject = {
            "schema": SCHEMA, "command": "packages build", "ok": True, "built": is_new, "changed": changed,
            **_row(made, suite),
        }  # fmt: skip
        emit_json(document)


@packages.command()
@click.argument("name")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@_system_option
@click.option(
    "--sha256sums", type=click.Path(path_type=Path), metavar="LIST", help="Checksums, as `sha256sum` prints them."
)
@json_option
@click.pass_obj
def add(
    settings: Settings,
    /,
    name: str,
    *,
    files: tuple[Path, ...],
    system: str,
    sha256sums: Path | None,
    as_json: bool,
) -> None:
    """Add packages of NAME (`slurm`) that were built elsewhere to the cluster's repository, signed with its key.

    Each FILE is a .deb; all of NAME's have one version. Libraries that they need in a later version than the nodes'
    system has are given with them.
    """
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.build_host import ThisMachine
    from deepopsctl.lifecycle.package_build import BuildStore
    from deepopsctl.lifecycle.package_files import add_packages, read_sums
    from deepopsctl.lifecycle.package_repository import PackageRepository

    directory = ClusterDir.open(settings.directory)
    sums = read_sums(sha256sums) if sha256sums else {}
    architecture = ThisMachine().architecture()
    store = BuildStore.of_user(os.environ)
    made, is_new = add_packages(store, name, system, architecture, files, sums)
    info(f"{made.text('version')}: {amount(len(made.packages), 'package')} {'added' if is_new else 'known already'}")
    repository = PackageRepository(directory)
    suite, changed = repository.publish(made, repository.added(made, store.builds()))
    info(f"repository {suite} {'updated' if changed else 'unchanged'}; files and checksums: {made.directory}")
    if as_json:
        document: AddedObject = {
            "schema": SCHEMA, "command": "packages add", "ok": True, "added": is_new, "changed": changed,
            **_row(made, suite),
        }  # fmt: skip
        emit_json(document)


@packages.command("list")
@json_option
@click.pass_obj
def list_(settings: Settings, /, *, as_json: bool) -> None:
    """List the builds of this machine, and those that the cluster's repository serves."""
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.lifecycle.package_build import BuildStore
    from deepopsctl.lifecycle.package_repository import PackageRepository

    directory = ClusterDir.open(settings.directory)
    suites = PackageRepository(directory).suites()
    served = {str(values["build"]): suite for platform in suites.values() for suite, values in platform.items()}
    rows = [_row(each, served.get(each.text("digest"), "")) for each in BuildStore.of_user(os.environ).builds()]
    if as_json:
        document: BuildsObject = {"schema": SCHEMA, "command": "packages list", "ok": True, "builds": rows}
        emit_json(document)
        return
    header = ("source", "version", "for", "built", "repository")
    names = ("source", "version", "os", "built_at", "suite")
    for line in table(header, [[str(dict(row)[name]) or "-" for name in names] for row in rows]):
        show(line)


def _build(
    name: str, directory: ClusterDir, store: BuildStore, host: BuildHost, options: dict[str, Any]
) -> tuple[Build, bool, str, bool]:
    """A source package: its build, whether it was made now, its suite, and whether that changed."""
    from deepopsctl.lab.image import own_mirror
    from deepopsctl.lifecycle.package_build import BuildRequest, default_features
    from deepopsctl.lifecycle.package_repository import PackageRepository

    source = _source(name, options, store)
    info(f"{source.name} {source.version}" + (f" of {source.suite}" if source.suite else ""))
    features = default_features(source.name, options["without"])
    request = BuildRequest(source, options["system"], host.architecture(), options["mirror"] or own_mirror(), features)
    made, is_new = store.build(request, host, info)
    repository = PackageRepository(directory)
    return made, is_new, *repository.publish(made, repository.added(made, store.builds()))


def _build_pyxis(
    _name: str, directory: ClusterDir, store: BuildStore, host: BuildHost, options: dict[str, Any]
) -> tuple[Build, bool, str, bool]:
    """The same of Pyxis and Enroot, whose sources the settings name."""
    from deepopsctl.lifecycle.pyxis_build import build_pyxis, target_of

    for option in ("source", "packaging", "suites", "without"):
        if options[option]:
            name = "--suite" if option == "suites" else f"--{option}"
            raise click.BadParameter("the sources of pyxis are those of environment_pyxis", param_hint=name)
    target = target_of(directory, store, options["system"], options["release"], options["mirror"])
    return build_pyxis(directory, store, host, target, options["mirror"], info)


def _host(directory: ClusterDir, options: dict[str, Any]) -> BuildHost:
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.selection import select_nodes
    from deepopsctl.errors import InputError
    from deepopsctl.lifecycle.build_host import OnNode, ThisMachine
    from deepopsctl.model.cluster import Role

    name = options["node"]
    if not name:
        return ThisMachine()
    cluster = directory.cluster()
    nodes = select_nodes([name], cluster, "--on")
    if len(nodes) > 1:
        raise click.BadParameter(f"{name} are several nodes", param_hint="--on")
    if Role.LOGIN in nodes[0].roles:
        raise InputError.single(
            "--on", f"{name} is a login node: users could change what all nodes install",
            "build on this machine, on a controller, or on a compute node without jobs",
        )  # fmt: skip
    return OnNode(directory, cluster, nodes[0], ask_login(options))


def _source(name: str, options: dict[str, Any], store: BuildStore) -> Source:
    from deepopsctl.lifecycle import package_sources

    if name == "slurm":
        package_sources.require_release(options["release"])
    if not options["source"]:
        groups = package_sources.archives_for(options["system"], options["mirror"], options["suites"])
        info(f"looking for the source of {name} in {', '.join(group[0].suite for group in groups)}")
        return package_sources.find_source(name, options["release"], groups, store.apt)
    tarball = package_sources.file_with_checksum("--source", options["source"], options["sha256"])
    packaging = None
    if options["packaging"]:
        packaging = package_sources.file_with_checksum("--packaging", options["packaging"], options["packaging_sha256"])
    return package_sources.source_from_tarball(name, options["release"], tarball, packaging)


def _row(made: Build, suite: str) -> BuildEntry:
    return {
        "source": made.text("source"), "version": made.text("version"), "release": made.text("release"),
        "os": made.text("os"), "architecture": made.text("architecture"), "features": made.record["features"],
        "digest": made.text("digest"), "built_at": made.text("built"), "directory": str(made.directory),
        "suite": suite,
    }  # fmt: skip
