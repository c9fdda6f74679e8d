"""`deepopsctl plan`: show what deploy would change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import (
    ComponentsCommand,
    components_argument,
    connection_options,
    duration_option,
    json_option,
    limit_option,
)

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import Limit
    from deepopsctl.cluster.ssh_login import Login
    from deepopsctl.run.plan import Plan
    from deepopsctl.run.request import RunRequest

# of --exit-code, apart from all failures
CHANGES = 2


@click.command(cls=ComponentsCommand)
@components_argument
@limit_option
@click.option("--diff", is_flag=True, help="Show full differences of all files, also of new ones.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False, writable=True), metavar="FILE",
    help="Also write the plan to FILE: `deploy FILE` does just that, or refuses.",
)  # fmt: skip
@click.option("--exit-code", is_flag=True, help="Exit with 2 if anything would change.")
@click.option("-e", "--extra-vars", multiple=True, metavar="KEY=VALUE|@FILE", help="Set a variable, as in Ansible.")
@click.option("--every-node", is_flag=True, help="Check each node, also where others report the same before a deploy.")
@click.option("--full", is_flag=True, help="Check everything, even where nothing changed since the last deploy.")
@duration_option("0", "Stop after this time: 90s, 2h.")
@click.option("--forks", type=click.IntRange(1, 10_000), help="Nodes in parallel.  [default: by memory, 25 to 100]")
@connection_options
@json_option
@click.pass_obj
def plan(settings: Settings, /, components: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Show what `deploy` would change and which running jobs it would affect; change nothing.

    Lists packages, files with differences, services, and every slurm.conf key with how it takes effect. Exit codes: 0
    even if something would change, 1 deploy would refuse or fail, 4 nodes did not answer.
    """
    from deepopsctl.cli.components import check_names, choose
    from deepopsctl.cli.output import emit_json, info, note, show
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cli.variables import parse_extra_vars
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import resolve_limit
    from deepopsctl.content import content_dir
    from deepopsctl.run.plan_file import write_plan

    content = content_dir(settings.content)
    check_names(components, content)
    directory = ClusterDir.open(settings.directory)
    directory.require_secrets()
    cluster = directory.cluster()
    wanted = choose(components, cluster, content)
    limit = resolve_limit(options["limit"] or "", cluster)
    variables = parse_extra_vars(options["extra_vars"], content)
    result, request = make_plan(
        settings, directory, options, wanted, limit, ask_login(options), content=content, user_vars=variables
    )
    show_plan(result, note if as_json else show, whole=options["diff"])
    if as_json:
        emit_json(result.document())
    if options["out"]:
        write_plan(options["out"], result, request, content)
        info(f"plan in {options['out']}; next: deepopsctl deploy {options['out']}")
    return int(result.exit_code) or (CHANGES if options["exit_code"] and result.changes else 0)


def make_plan(
    settings: Settings,
    directory: ClusterDir,
    options: dict[str, Any],
    wanted: tuple[str, ...],
    limit: Limit,
    login: Login,
    **fields: Any,
) -> tuple[Plan, RunRequest]:
    """The plan of a deploy of these components, and the request that it was made by."""
    from deepopsctl.cli.execute import run_request, run_watched
    from deepopsctl.cluster.inventory import render_inventory
    from deepopsctl.run.plan import COMMAND, examine, save
    from deepopsctl.run.questions import JOBS

    request = run_request(
        settings,
        directory,
        options,
        (*wanted, JOBS),
        login,
        command=COMMAND,
        limit=limit.text,
        check=True,
        # what is deployed later is what was checked
        by_class=not (options.get("every_node", True) or options.get("out")),
        timeout=options["timeout"],
        inventory=render_inventory(directory.cluster()),
        **fields,
    )
    result = examine(run_watched(request, limit.hosts, verbosity=settings.verbosity))
    save(result)
    return result, request


def show_plan(result: Plan, write: Callable[[str], None], *, whole: bool) -> None:
    """The plan for a person."""
    from deepopsctl.cli.views.plan import plan_lines
    from deepopsctl.cli.views.run import shown_path
    from deepopsctl.run.plan import PLAN_FILE

    for line in plan_lines(result, whole=whole, record=shown_path(result.outcome.run_dir.path / PLAN_FILE)):
        write(line)
