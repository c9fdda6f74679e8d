"""The command line: the only place that prints, and the one that turns errors into exit codes."""

from __future__ import annotations

import importlib
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import click

from deepopsctl import __version__
from deepopsctl.errors import DeepOpsError, ExitCode, InputError

# name -> module:attribute, imported only when the command is used: --help stays fast
COMMANDS = {
    "init": "deepopsctl.cli.init:init",
    "inventory": "deepopsctl.cli.inventory:inventory",
    "ssh": "deepopsctl.cli.ssh:ssh",
    "deploy": "deepopsctl.cli.deploy:deploy",
    "validate": "deepopsctl.cli.validate:validate",
    "runs": "deepopsctl.cli.runs:runs",
    "lab": "deepopsctl.cli.lab:lab",
}

SUMMARIES = {
    "init": "Turn node lists into a cluster directory.",
    "inventory": "Check cluster.yml and write the Ansible inventory anew.",
    "ssh": "Passwordless SSH to all nodes.",
    "deploy": "Install and configure components on the nodes.",
    "validate": "Prove through Slurm that the cluster works.",
    "runs": "What earlier runs did.",
    "lab": "A throw-away cluster of containers on this machine.",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Global options, handed to every command as click's `obj`."""

    directory: Path
    verbosity: int
    content: Path | None = None


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order a newcomer needs them, not alphabetical."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command, or None so that click reports a usage error."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module_name, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name]} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the table above: no import of any of them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "DEEPOPSCTL",
        "max_content_width": 110,
    },
)
@click.option(
    "-C",
    "--directory",
    type=click.Path(path_type=Path),
    envvar="DEEPOPSCTL_CLUSTER",
    default=Path(),
    help="The cluster directory (or $DEEPOPSCTL_CLUSTER).  [default: the current folder]",
)
@click.option(
    "--content",
    type=click.Path(path_type=Path),
    envvar="DEEPOPSCTL_CONTENT",
    hidden=True,
    help="Folder with playbooks/ and roles/.  [default: deepopsctl's own]",
)
@click.option("-v", "--verbose", count=True, help="Say more; -vv adds tracebacks, -vvv Ansible's own detail.")
@click.version_option(__version__, prog_name="deepopsctl")
@click.pass_context
def cli(ctx: click.Context, directory: Path, content: Path | None, verbose: int) -> None:
    """Turn a list of Linux machines into a validated GPU Slurm cluster.

    First time: `deepopsctl init DIR ...`, then `deepopsctl -C DIR ssh setup`, `deploy`, `validate`.
    """
    ctx.obj = Settings(directory=directory, verbosity=verbose, content=content)


def main() -> None:
    """Entry point of the `deepopsctl` script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code; nothing escapes as a traceback below -vv."""
    try:
        result = cli.main(args=arguments, prog_name="deepopsctl", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except DeepOpsError as error:
        _show(error, arguments)
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    return result if isinstance(result, int) else ExitCode.OK


def _show(error: DeepOpsError, arguments: list[str]) -> None:
    from deepopsctl.cli.output import emit_json, errors_object, show_error

    if "--json" in arguments:
        emit_json(errors_object(error))
    show_error(error)
    if any(argument.startswith("-vv") for argument in arguments) and not isinstance(error, InputError):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
