"""`deepopsctl init`: node lists -> cluster directory."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.options import confirm_option, json_option
from deepopsctl.text.amounts import amount

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.imports.request import InitResult
    from deepopsctl.model.json_objects import InitObject

_NODES = "NAMES[=ADDRESSES]"


@click.command()
@click.argument("target", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--controller",
    multiple=True,
    metavar=_NODES,
    help="Slurm controllers; the first is the primary.",
)
@click.option("--compute", multiple=True, metavar=_NODES, help="Compute nodes: gpu[01-16]=10.0.1.[11-26].")
@click.option("--login", multiple=True, metavar=_NODES, help="Login nodes.")
@click.option(
    "--monitoring",
    multiple=True,
    metavar=_NODES,
    help="Monitoring server.  [default: first controller]",
)
@click.option(
    "--nfs-server",
    multiple=True,
    metavar=_NODES,
    help="NFS server.  [default: first controller]",
)
@click.option(
    "--gpus",
    multiple=True,
    metavar="[NODESET:]TYPE:COUNT",
    help="GPUs of compute nodes: h100:8, gpu[01-02]:a100:4.",
)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="Node list: hostlist, hosts file, CSV, TSV, cluster.yml, Ansible inventory (INI, YAML, JSON), slurm.conf (or "
    "the directory of one), nodes of OpenCHAMI or Warewulf; - for stdin.",
)
@click.option(
    "--group",
    multiple=True,
    metavar="ROLE=GROUP",
    help="Role of an inventory group, if its name does not show it: compute=workers.",
)
@click.option(
    "--addresses",
    type=click.Path(path_type=Path, readable=False),
    metavar="FILE",
    help="Hosts file (or other node list) with addresses of nodes that have none.",
)
@click.option("--name", default="", help="Cluster name.  [default: the directory's]")
@click.option("--user", default="", help="User to log in as.  [default: ssh's own]")
@click.option(
    "--ssh-key",
    default="",
    metavar="FILE",
    help="Private key.  [default: the cluster's own, see `ssh setup`]",
)
@click.option("--port", default="", help="SSH port of the nodes.  [default: ssh's own]")
@click.option("--jump-host", default="", metavar="[USER@]HOST[:PORT]", help="Reach the nodes through this host.")
@click.option(
    "--force",
    is_flag=True,
    help="Replace cluster.yml of an existing cluster; a backup is kept; secrets, settings, keys and runs stay.",
)
@confirm_option
@json_option
def init(target: Path, source: str | None, *, force: bool, as_json: bool, **options: Any) -> None:
    """Turn node lists into a cluster directory.

    \b
    deepopsctl init hpc --controller ctl1 --compute 'gpu[01-16]=10.0.1.[11-26]' --gpus h100:8
    deepopsctl init hpc --from nodes.csv
    deepopsctl init hpc --from deepops/config
    deepopsctl init hpc --from slurm.conf --addresses /etc/hosts

    Settings that can't be imported are listed here and in import-report.md.
    """
    from deepopsctl.cli.output import info
    from deepopsctl.cluster.create import check_target, create_cluster, replace_cluster
    from deepopsctl.imports.request import InitRequest, read_request

    confirmed = options.pop("confirm")
    if force:
        _confirm_replaced(target, confirmed)
    else:
        check_target(target)
    stdin = sys.stdin.buffer if source == "-" else None
    path = Path(source) if source and source != "-" else None
    if path and not any(options[name] for name in ("group", "controller", "compute")) and sys.stdin.isatty():
        options["group"] = _ask_for_groups(path)
    result = read_request(InitRequest(target, source=path, stdin=stdin, **options))
    arguments = (target, result.cluster, result.carryover, source or "")
    made, copies = replace_cluster(*arguments) if force else (create_cluster(*arguments), [])
    for copy in copies:
        info(f"backup of the previous file: {copy}")
    _report(made, result, as_json=as_json)


def _confirm_replaced(target: Path, confirmed: str) -> None:
    """Ask for the name of a protected cluster; one whose cluster.yml has errors does not say that it is."""
    from contextlib import suppress

    from deepopsctl.cli.interactive import confirm_protected
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.errors import DeepOpsError

    cluster = None
    with suppress(DeepOpsError):
        cluster = ClusterDir.open(target).cluster()
    if cluster:
        confirm_protected(f"replace cluster.yml of {cluster.name}?", cluster, confirmed)


def _ask_for_groups(source: Path) -> tuple[str, ...]:
    """Ask for the role of each inventory group whose name does not show it: ROLE=GROUP."""
    from deepopsctl.imports.request import unknown_groups
    from deepopsctl.model.cluster import Role

    groups = []
    for name, count in unknown_groups(source).items():
        question = f"What is the role of the {amount(count, 'host')} of the group {name}?"
        role = click.prompt(question, type=click.Choice([*Role, "none"]), default="none", err=True)
        groups += [f"{role}={name}"] if role != "none" else []
    return tuple(groups)


def _report(made: ClusterDir, result: InitResult, *, as_json: bool) -> None:
    from deepopsctl.cli.output import emit_json, info, show_warning
    from deepopsctl.cli.views.cluster import cluster_object, group_lines, import_lines
    from deepopsctl.cluster.spelling import misspelt_values, shared_login_home
    from deepopsctl.text.node_sets import fold_in_order

    if result.left_out:
        info(f"left out, because no option names them: {fold_in_order(result.left_out)}")
    if as_json:
        carryover = result.carryover
        document: InitObject = {
            **cluster_object("init", made.path, result.cluster),
            "not_carried": [note.to_dict() for note in carryover.not_carried],
            "to_check": [note.to_dict() for note in carryover.to_check],
            "changed": [note.to_dict() for note in carryover.changed],
        }
        emit_json(document)
        return
    for line in group_lines(result.cluster):
        click.echo(line)
    for line in import_lines(result.carryover, made.path):
        info(line)
    for problem in (*misspelt_values(result.cluster), *shared_login_home(result.cluster)):
        show_warning(problem)
    info(f"cluster {result.cluster.name}: {amount(len(result.cluster.nodes), 'node')} in {made.path}")
    info(f"next: deepopsctl -C {quote(str(made.path))} ssh setup")
