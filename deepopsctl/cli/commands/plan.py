"""`deepopsctl plan`: show what deploy would change."""

from __future__ import annotations

from typing import Any

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


@click.command(cls=ComponentsCommand)
@components_argument
@limit_option
@click.option("--diff", is_flag=True, help="Show full differences of all files, also of new ones.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything would change, as git diff does.")
@click.option("-e", "--extra-vars", multiple=True, metavar="KEY=VALUE|@FILE", help="Set a variable, as in Ansible.")
@click.option("--every-node", is_flag=True, help="Check each node, also where others report the same before a deploy.")
@click.option("--full", is_flag=True, help="Check everything, even where nothing changed since the last deploy.")
@duration_option("0", "Stop after this time: 90s, 2h.")
@click.option("--forks", type=click.IntRange(1, 10_000), help="Nodes in parallel.  [default: by cores, 25 to 100]")
@connection_options
@json_option
@click.pass_obj
def plan(settings: Settings, /, components: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Show what `deploy` would change and which running jobs it would affect; change nothing.

    Lists packages, files with differences, services, and every slurm.conf key with how it takes effect. Exit codes: 0
    even if something would change, 1 deploy would refuse or fail, 4 nodes did not answer.
    """
    from deepopsctl.cli.components import check_names, choose
    from deepopsctl.cli.execute import run_request, run_watched
    from deepopsctl.cli.output import emit_json, info, show
    from deepopsctl.cli.variables import parse_extra_vars
    from deepopsctl.cli.views.plan import plan_lines
    from deepopsctl.cli.views.run import shown_path
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.inventory import render_inventory
    from deepopsctl.cluster.selection import resolve_limit
    from deepopsctl.content import content_dir
    from deepopsctl.run.plan import COMMAND, PLAN_FILE, examine, save
    from deepopsctl.run.questions import JOBS

    content = content_dir(settings.content)
    check_names(components, content)
    directory = ClusterDir.open(settings.directory)
    directory.require_secrets()
    cluster = directory.cluster()
    wanted = choose(components, cluster, content)
    limit = resolve_limit(options["limit"] or "", cluster)
    request = run_request(
        settings,
        directory,
        options,
        (*wanted, JOBS),
        command=COMMAND,
        limit=limit.text,
        check=True,
        by_class=not options["every_node"],
        timeout=options["timeout"],
        user_vars=parse_extra_vars(options["extra_vars"], content),
        content=content,
        inventory=render_inventory(cluster),
    )
    result = examine(run_watched(request, limit.hosts, verbosity=settings.verbosity))
    save(result)
    for line in plan_lines(result, whole=options["diff"], record=shown_path(result.outcome.run_dir.path / PLAN_FILE)):
        (info if as_json else show)(line)
    if as_json:
        emit_json(result.document())
    changes = options["exit_code"] and bool(result.changes)
    return int(result.exit_code) or int(changes)
