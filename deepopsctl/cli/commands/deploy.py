"""`deepopsctl deploy`: install and configure components on the nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import (
    ComponentsCommand,
    check_option,
    components_argument,
    connection_options,
    duration_option,
    hold_waiting_option,
    json_option,
    limit_option,
)
from deepopsctl.cli.output import emit_json, info, note

if TYPE_CHECKING:
    from deepopsctl.run.plan import Plan


# what a plan in a file has decided
_IN_PLAN = ("limit", "tags", "check", "full")


class DeployCommand(ComponentsCommand):
    """Its help also names what stands in the place of components."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """`[OPTIONS] [COMPONENT | PLAN-FILE]...`."""
        return [piece.replace("COMPONENT]", "COMPONENT | PLAN-FILE]") for piece in super().collect_usage_pieces(ctx)]


@click.command(cls=DeployCommand)
@components_argument
@limit_option
@click.option("--ask", is_flag=True, help="Show the plan, and ask before anything is changed.")
@check_option
@click.option("--diff", is_flag=True, help="Show file differences.")
@click.option("--tags", metavar="TAGS", help="Only the components with these tags.")
@click.option("-e", "--extra-vars", multiple=True, metavar="KEY=VALUE|@FILE", help="Set a variable, as in Ansible.")
@click.option("--full", is_flag=True, help="Check everything, even where nothing changed since the last deploy.")
@click.option("--break-lock", is_flag=True, help="Ignore the lock of another control machine that has died.")
@click.option("--replace-newer", is_flag=True, help="Apply this cluster.yml even if a newer one is deployed.")
@hold_waiting_option
@duration_option("0", "Stop after this time: 90s, 2h.")
@click.option("--forks", type=click.IntRange(1, 10_000), help="Nodes in parallel.  [default: by memory, 25 to 100]")
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

    With the file of `plan --out`: deploy what was planned, or refuse if the plan would be another one by now.
    """
    from deepopsctl.cli.commands.environments import lock_outdated
    from deepopsctl.cli.commands.plan import make_plan, show_plan
    from deepopsctl.cli.components import check_names, choose
    from deepopsctl.cli.execute import run_and_report, run_request
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cli.variables import parse_extra_vars
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.selection import resolve_limit
    from deepopsctl.content import content_dir
    from deepopsctl.run.plan_file import inputs_of, read_plan, require_same_changes, require_same_inputs
    from deepopsctl.run.workspace import Workspace
    from deepopsctl.status.cluster import last_runs

    content = content_dir(settings.content)
    if (file := _plan_file(components, options, content)) is None:
        check_names(components, content)
    directory = ClusterDir.open(settings.directory)
    user_vars = parse_extra_vars(options["extra_vars"], content)
    stored = read_plan(file) if file else None
    if file and stored:
        require_same_inputs(file, stored, directory, inputs_of(content, directory, user_vars))
        components, options = stored.components, {**options, "limit": stored.limit or None, "full": stored.full}
    cluster = directory.cluster()
    wanted = choose(components, cluster, content)
    tags = known_tags(options["tags"], wanted)
    limit = resolve_limit(options["limit"] or "", cluster)
    login = ask_login(options)
    # what was planned has its locks
    if "environment" in wanted and cluster.has_environment and not (options["check"] or stored):
        lock_outdated(settings, directory, login)
    if options["ask"] or stored:
        fields = {"content": content, "user_vars": user_vars}
        result, _ = make_plan(settings, directory, options, wanted, limit, login, **fields)
        show_plan(result, note, whole=options["diff"])
        if file and stored:
            require_same_changes(file, stored, result)
        if options["ask"] and not _agreed(result):
            if as_json:
                emit_json(result.document())
            return int(result.exit_code)
    directory.refresh_inventory(cluster)
    directory.refresh_secrets()
    request = run_request(
        settings,
        directory,
        options,
        wanted,
        login,
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
    code = run_and_report(request, limit.hosts, verbosity=settings.verbosity, as_json=as_json)
    if not (code or options["check"] or last_runs(Workspace(directory.runs)).validation):
        info("next: deepopsctl validate")
        info("Prometheus and Grafana, users, what each file of this directory is: docs/get-started/your-nodes.md")
    return code


def _plan_file(words: tuple[str, ...], options: dict[str, Any], content: Path) -> Path | None:
    """The file of a plan, where one stands in the place of components."""
    from deepopsctl.content import components

    others = [word for word in words if word not in components(content)]
    files = [Path(word) for word in others if "/" in word or Path(word).suffix == ".json" or Path(word).is_file()]
    if not files:
        if options["ask"] and options["check"]:
            raise click.UsageError("--ask and --check exclude each other: `plan` only shows")
        return None
    if len(words) > 1:
        raise click.UsageError("with the file of a plan, give nothing else: the components are in it")
    if named := [f"--{name}" for name in _IN_PLAN if options[name]]:
        raise click.UsageError(f"{', '.join(named)}: leave it out, {words[0]} says it")
    return files[0]


def _agreed(result: Plan) -> bool:
    """Ask; no question where a deploy would be refused, or has nothing to do."""
    if result.exit_code or not result.changes:
        return False
    if not sys.stdin.isatty():
        raise click.UsageError("--ask: there is no terminal to ask on: `plan --out FILE`, then `deploy FILE`")
    return click.confirm("deploy this?", abort=True, err=True)


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
