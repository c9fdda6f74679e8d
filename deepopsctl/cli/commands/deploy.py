"""`deepopsctl deploy`: install and configure components on the nodes."""

from __future__ import annotations

from typing import Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import (
    ComponentsCommand,
    components_argument,
    connection_options,
    duration_option,
    hold_waiting_option,
    json_option,
    limit_option,
)


@click.command(cls=ComponentsCommand)
@components_argument
@limit_option
@click.option("--check", is_flag=True, help="Show what would change; change nothing.")
@click.option("--diff", is_flag=True, help="Show file differences.")
@click.option("--tags", metavar="TAGS", help="Only the components with these tags.")
@click.option("-e", "--extra-vars", multiple=True, metavar="KEY=VALUE|@FILE", help="Set a variable, as in Ansible.")
@click.option("--full", is_flag=True, help="Check everything, even where nothing changed since the last deploy.")
@click.option("--break-lock", is_flag=True, help="Ignore the lock of another control machine that has died.")
@click.option("--replace-newer", is_flag=True, help="Apply this cluster.yml even if a newer one is deployed.")
@hold_waiting_option
@duration_option("0", "Stop after this time: 90s, 2h.")
@click.option("--forks", type=click.IntRange(1, 10_000), help="Nodes in parallel.  [default: by cores, 25 to 100]")
@click.option(
    "--keep-runs",
    type=click.IntRange(1, 1_000_000),
    default=50,
    show_default=True,
    help="How many run directories to keep.",
)
@connection_options
@json_option
@click.pass_obj
def deploy(settings: Settings, /, components: tuple[str, ...], *, as_json: bool, **options: Any) -> int:
    """Install and configure components on the nodes; without COMPONENT, those that cluster.yml lists.

    Nothing is changed where it is up to date; jobs keep running. Unreachable nodes are skipped (exit code 4).
    """
    from deepopsctl.cli.commands.environments import lock_outdated
    from deepopsctl.cli.components import check_names, choose
    from deepopsctl.cli.execute import run_and_report, run_request
    from deepopsctl.cli.variables import parse_extra_vars
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import resolve_limit
    from deepopsctl.content import content_dir

    content = content_dir(settings.content)
    check_names(components, content)
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    wanted = choose(components, cluster, content)
    tags = known_tags(options["tags"], wanted)
    limit = resolve_limit(options["limit"] or "", cluster)
    user_vars = parse_extra_vars(options["extra_vars"], content)
    directory.refresh_inventory(cluster)
    directory.refresh_secrets()
    request = run_request(
        settings,
        directory,
        options,
        wanted,
        limit=limit.text,
        tags=tags,
        check=options["check"],
        diff=options["diff"],
        timeout=options["timeout"],
        keep_runs=options["keep_runs"],
        user_vars=user_vars,
        content=content,
        extra_vars={"deepops_hold_waiting": options["hold_waiting"]},
        claim={"break_lock": options["break_lock"], "replace_newer": options["replace_newer"]},
    )
    if "environment" in wanted and cluster.has_environment and not options["check"]:
        lock_outdated(settings, directory, request.login)
    return run_and_report(request, limit.hosts, verbosity=settings.verbosity, as_json=as_json)


def known_tags(text: str | None, components: tuple[str, ...]) -> str:
    """The requested tags, '' for none; refuse a role's: without its component's first tasks it would reach no node."""
    from deepopsctl.text.values import suggest

    if text is None:
        return ""
    wanted = [tag.strip() for tag in text.split(",")]
    for tag in wanted:
        if tag not in components:
            message = f"--tags: {tag!r} is not a component of this run; with it alone nothing would be done"
            raise click.UsageError(f"{message}; {suggest(tag, components)}")
    return ",".join(wanted)
