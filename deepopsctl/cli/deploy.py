"""`deepopsctl deploy`: make the nodes what the cluster directory says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from deepopsctl.cli import Settings
from deepopsctl.cli.options import connection_options, json_option, limit_option


@click.command()
@click.argument("components", nargs=-1, metavar="[COMPONENT]...")
@limit_option
@click.option("--check", is_flag=True, help="Say what would change; change nothing.")
@click.option("--diff", is_flag=True, help="Show changes of files.")
@click.option("--tags", default="", metavar="TAGS", help="Only tasks with these tags.")
@click.option("-e", "--extra-vars", multiple=True, metavar="KEY=VALUE|@FILE", help="Set a variable, as in Ansible.")
@click.option("--full", is_flag=True, help="Look at everything, also where nothing has changed since the last deploy.")
@click.option("--timeout", type=click.FloatRange(min=0), default=0, metavar="SECONDS", help="Give up after this time.")
@click.option("--forks", type=click.IntRange(min=1), help="Nodes worked on at once.  [default: by cores, 25 to 100]")
@connection_options
@json_option
@click.pass_obj
def deploy(settings: Settings, components: tuple[str, ...], *, as_json: bool, **given: Any) -> int:
    """Install and configure components on the nodes; without COMPONENT, all of them."""
    from deepopsctl.cli.running import run_and_report
    from deepopsctl.cli.variables import parse_extra_vars
    from deepopsctl.clusterdir import ClusterDir
    from deepopsctl.content import components as known_components
    from deepopsctl.invocation import RunRequest
    from deepopsctl.limits import resolve_limit

    known = known_components(settings.content)
    wanted = _in_order(components, known)
    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    directory.refresh_inventory(cluster)
    limit = resolve_limit(given["limit"] or "", cluster)
    request = RunRequest(
        directory,
        wanted[0],
        more=wanted[1:],
        limit=limit.text,
        user_vars=parse_extra_vars(given["extra_vars"]),
        content=settings.content,
        verbosity=settings.verbosity if settings.verbosity > 2 else 0,
        **{name: given[name] for name in ("check", "diff", "tags", "full", "timeout")},
        forks=given["forks"] or 0,
        user=given["user"] or "",
        **settings_passwords(given),
    )
    return run_and_report(request, limit.hosts, cluster.name, as_json=as_json)


def settings_passwords(given: dict[str, Any]) -> dict[str, str | None]:
    """Ask for what -k and -K need."""
    from deepopsctl.cli.options import ask_passwords

    return ask_passwords(ssh=given["ask_pass"], become=given["ask_become_pass"])


def _in_order(wanted: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    for name in wanted:
        if name not in known:
            raise click.BadArgumentUsage(f"there is no component {name!r}; there are: {', '.join(known)}")
    return tuple(name for name in known if name in wanted) or known
