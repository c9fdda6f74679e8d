"""Options that several commands share, each declared once; -C and -v work before a command and after it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])
Decorator = Callable[[F], F]
Names = str | tuple[str, ...] | None

# -C as it was typed, '' where it was not: commands in messages have it too, so that they can be pasted
DIRECTORY: ContextVar[str] = ContextVar("DIRECTORY", default="")
# a year
_MOST_SECONDS = 366 * 86400
_FIGURE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def together(*options: Decorator[Any]) -> Decorator[Any]:
    """One decorator of several options, which --help shows in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class RenamedOption(click.Option):
    """An option whose `old` name, and its environment variable, work until the next release; nothing shows them."""

    def __init__(self, *args: Any, old: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.old = old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """As click does it, with the old name as well."""
        shown = self.opts
        self.opts = [*shown, self.old]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def duration_option(default: str, text: str) -> Decorator[Any]:
    """--timeout; 0 is none, and --help shows any other default."""
    return click.option(
        "--timeout", callback=seconds, default=default, show_default=default != "0", metavar="DURATION", help=text
    )


def _components(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell's Tab key."""
    from deepopsctl.content import components

    del ctx, param
    return [name for name in components() if name.startswith(incomplete)]


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell's Tab key: nodes and groups of the cluster, the last one of a list."""
    del param
    begin, comma, last = incomplete.rpartition(",")
    # completion shows no errors
    with suppress(Exception):
        from deepopsctl.cluster.directory import ClusterDir
        from deepopsctl.cluster.inventory import GROUPS

        cluster = ClusterDir.open(ctx.find_root().params.get("directory") or Path()).cluster()
        names = [*(node.name for node in cluster.nodes), *GROUPS, "slurm_cluster"]
        return [f"{begin}{comma}{name}" for name in names if name.startswith(last)]
    return []


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell's Tab key: the stored runs, the newest first."""
    del param
    with suppress(Exception):
        from deepopsctl.cluster.directory import ClusterDir
        from deepopsctl.run.workspace import Workspace

        directory = ClusterDir.open(ctx.find_root().params.get("directory") or Path())
        return [run.id for run in Workspace(directory.runs).newest_first() if run.id.startswith(incomplete)]
    return []


class ComponentsCommand(click.Command):
    """A command about components; its help lists those of playbooks/site.yml."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The docstring, and the components."""
        from deepopsctl.content import components

        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"COMPONENT is one of {', '.join(components())}.")


check_option = click.option("--check", is_flag=True, help="Show what would change; change nothing.")
components_argument = click.argument("components", nargs=-1, metavar="[COMPONENT]...", shell_complete=_components)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
sudo_option = click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the sudo password.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Don't ask for confirmation.")
confirm_option = click.option(
    "--confirm", default="", metavar="NAME", help="The cluster's name, required if cluster.yml sets `protected: true`."
)
hold_waiting_option = click.option(
    "--hold-waiting", is_flag=True,
    help="Hold waiting jobs that Slurm would end, or never start, after this; otherwise it is refused.",
)  # fmt: skip


def names_nodes(ctx: click.Context, param: click.Parameter, value: Names) -> Names:
    """Refuse a node set that names nothing: for Ansible, `--limit "$NODES"` without NODES is the whole cluster."""
    for text in (value,) if isinstance(value, str) else value or ():
        parts = re.split(r"[,:\s]+", text)
        # `!` and `&` of nothing leave all nodes, and so does `~`
        if not any(parts) or any(re.fullmatch(r"[!&~@]+", part) for part in parts):
            otherwise = "; for all nodes, leave the option out" if param.name == "limit" else ""
            message = f"{text!r} names no node (is a variable of the shell empty?){otherwise}"
            raise click.BadParameter(message, ctx, param)
    return value


limit_option = click.option(
    "--limit", metavar="NODESET", callback=names_nodes, shell_complete=complete_nodes,
    help="Only these nodes (gpu[01-04]) or groups.",
)  # fmt: skip


def seconds_between(least: int, most: int) -> Callable[[click.Context, click.Parameter, str], int]:
    """The same for a duration that has bounds, in whole seconds."""

    def read(ctx: click.Context, param: click.Parameter, text: str) -> int:
        duration = int(seconds(ctx, param, text))
        if not least <= duration <= most:
            raise click.BadParameter(f"{text!r} is not from {least}s to {most}s", ctx, param)
        return duration

    return read


def seconds(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Seconds, from `90`, `1.5`, `90s`, `30m`, `2h` or `1d`; a whole number is an int."""
    figure, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    number = float(figure) * unit if _FIGURE.fullmatch(figure) else -1
    if not 0 <= number <= _MOST_SECONDS:
        raise click.BadParameter(f"{text!r} is not a valid duration: write 90s, 30m, 2h or 1d", ctx, param)
    return int(number) if number == int(number) else number


def login_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse what would be something else on ssh's command line."""
    from deepopsctl.text.problems import RefusedError
    from deepopsctl.text.values import check_user

    try:
        return check_user(value) if value else value
    except RefusedError as refusal:
        raise click.BadParameter(f"{refusal.message}: {refusal.hint}", ctx, param) from refusal


def _user_option(*names: str) -> Decorator[Any]:
    return click.option(*names, metavar="USER", callback=login_name, help="Log in as USER instead of cluster.yml's.")


user_option = _user_option("-u", "--user")
_ask_pass_option = click.option("-k", "--ask-pass", is_flag=True, help="Ask for the SSH password.")
# Ansible's own login options, with Ansible's meaning: of every command that reaches nodes
connection_options = together(_ask_pass_option, sudo_option, user_option)
# where -u is journalctl's
long_connection_options = together(_ask_pass_option, sudo_option, _user_option("--user"))
# of a command that consists of several runs (cli/interactive.py)
console_options = together(yes_option, confirm_option, json_option)
workflow_options = together(connection_options, console_options)


# of --help, for a command with many options; those that are in none come first
_SECTIONS = {
    "Login": ("--ask-pass", "--ask-become-pass", "--user", "--password-file", "--identity"),
    "Run": ("--timeout", "--forks", "--keep-runs", "--break-lock", "--replace-newer", "--hold-waiting"),
    "Questions and output": ("--yes", "--confirm", "--json", "--junit", "--html", "--help"),
}
_MANY = 9


def _format_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    records = [(param, record) for param in command.get_params(ctx) if (record := param.get_help_record(ctx))]
    titles = {name: title for title, names in _SECTIONS.items() for name in names} if len(records) > _MANY else {}
    for title in ("Options", *_SECTIONS):
        rows = [row for param, row in records if titles.get(max(param.opts, key=len), "Options") == title]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def accept_after_subcommand(command: click.Command) -> click.Command:
    """Let a command, and those below it, take -C and -v as well, unless it has such an option of its own."""
    if not isinstance(command, click.Group):
        command.format_options = MethodType(_format_options, command)  # type: ignore[method-assign]  # of any class
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            command.commands[name] = accept_after_subcommand(child)
    for parameter in command.params:
        if isinstance(parameter.type, click.IntRange) and not parameter.metavar:
            # its range stands at the end of its help
            parameter.metavar = "NUMBER"
    own_options = {word for parameter in command.params for word in parameter.opts}
    for option in _options():
        if not own_options & set(option.opts):
            command.params.append(option)
    return command


def name_variables(command: click.Command, prefix: str) -> None:
    """Name each option's environment variable after the option; click names it after the function's argument."""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            name_variables(child, f"{prefix}_{name}")
    for option in command.params:
        if isinstance(option, click.Option) and option.allow_from_autoenv:
            option.envvar = _variable(prefix, max(option.opts, key=len))
            if isinstance(option, RenamedOption):
                option.envvar = [option.envvar, _variable(prefix, option.old)]


def _variable(prefix: str, name: str) -> str:
    return f"{prefix}_{name.lstrip('-')}".replace("-", "_").upper()


def _options() -> tuple[click.Option, ...]:
    return (
        click.Option(
            ["-C", "--directory"],
            type=click.Path(path_type=Path),
            expose_value=False,
            hidden=True,
            allow_from_autoenv=False,
            callback=_set_directory,
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            hidden=True,
            allow_from_autoenv=False,
            callback=_add_verbosity,
        ),
    )


def _set_directory(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    del parameter
    if value is not None:
        ctx.obj = replace(ctx.obj, directory=value)
        DIRECTORY.set(str(value))


def _add_verbosity(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
    del parameter
    if value:
        ctx.obj = replace(ctx.obj, verbosity=ctx.obj.verbosity + value)
