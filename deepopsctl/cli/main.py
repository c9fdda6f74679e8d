"""The command line: the only place that prints, and the one that turns errors into exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from deepopsctl import __version__
from deepopsctl.cli.options import DIRECTORY, accept_after_subcommand, name_variables

if TYPE_CHECKING:
    from deepopsctl.errors import DeepOpsError

# The `--help` text of each command. Its module in commands/ is imported only when it is used: --help stays fast.
COMMANDS = MappingProxyType({
    "init": "Turn node lists into a cluster directory.",
    "inventory": "Check cluster.yml and update the Ansible inventory.",
    "ssh": "Set up passwordless SSH to all nodes.",
    "doctor": "Find problems of all nodes and this machine; read-only.",
    "takeover": "Adopt an existing Slurm installation.",
    "plan": "Show what deploy would change; change nothing.",
    "deploy": "Install and configure components on the nodes.",
    "validate": "Run validation jobs through Slurm.",
    "status": "Show nodes, jobs, versions, drift and the last runs.",
    "usage": "Show use and shares of accounts, in reference GPU units.",
    "docs": "Write this cluster's user guide; show pages and schemas.",
    "logs": "Show collected node logs.",
    "people": "Add, list and expire users of people.yml.",
    "packages": "Build packages once, and serve them from a signed repository.",
    "wheels": "Fetch and list Python wheels for users.",
    "environments": "Lock, list and remove environments of Python packages.",
    "node": "Add, remove, replace, drain or resume nodes.",
    "secrets": "Rotate the cluster's keys and passwords while jobs run.",
    "backup": "Back up the accounting database and slurmctld's state.",
    "upgrade": "Upgrade Slurm, packages and drivers while jobs run.",
    "restore": "Bring a lost controller back from a backup.",
    "runs": "Show earlier runs.",
    "lab": "Run a disposable cluster of containers on this machine.",
    "completion": "Print the completion script of a shell.",
})  # fmt: skip
# as --help groups them; what is in no group comes last
_SECTIONS = MappingProxyType({
    "Begin": ("init", "inventory", "ssh", "doctor", "takeover"),
    "Deploy": ("plan", "deploy", "validate"),
    "Watch": ("status", "usage", "logs", "runs"),
    "Operate": ("node", "upgrade", "packages", "secrets", "backup", "restore"),
    "Users": ("people", "docs", "wheels", "environments"),
})  # fmt: skip

# of environment variables; and values of flags that are off, as click has them
PREFIX = "DEEPOPSCTL"
_NO = frozenset({"", "0", "false", "f", "no", "n", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Global options, handed to every command as click's `obj`. `content` is None where it is deepopsctl's own."""

    directory: Path
    verbosity: int
    content: Path | None = None


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order a new user needs them, not alphabetical."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; one that does not exist is an error that names the likely one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"deepopsctl.cli.commands.{cmd_name}"), cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"commands/{cmd_name}.py has no command of this name")
        name_variables(command, f"{PREFIX}_{cmd_name}")
        return accept_after_subcommand(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but the error for an unknown command lists the known ones."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"the commands are: {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the tables above: no import of any of them."""
        del ctx
        grouped = {name for names in _SECTIONS.values() for name in names}
        width = max(map(len, COMMANDS))
        for title, names in {**_SECTIONS, "More": tuple(name for name in COMMANDS if name not in grouped)}.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name]) for name in names if name in COMMANDS])


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": PREFIX,
        "max_content_width": 110,
    },
)
@click.option(
    "-C",
    "--directory",
    type=click.Path(path_type=Path),
    envvar="DEEPOPSCTL_CLUSTER",
    default=Path(),
    help="The cluster directory (or $DEEPOPSCTL_CLUSTER).  [default: the current directory]",
)
@click.option(
    "--content",
    type=click.Path(path_type=Path),
    envvar="DEEPOPSCTL_CONTENT",
    hidden=True,
    help="The directory with playbooks/ and roles/.  [default: deepopsctl's own]",
)
@click.option("-v", "--verbose", count=True, help="More output: -vv adds tracebacks, -vvv Ansible's own output.")
@click.version_option(__version__, prog_name="deepopsctl")
@click.pass_context
def cli(ctx: click.Context, directory: Path, content: Path | None, verbose: int) -> None:
    """Turn a list of Linux machines into a validated GPU Slurm cluster.

    First time: `deepopsctl init DIR ...`, then `deepopsctl -C DIR ssh setup`, `deploy`, `validate`. Every option has
    an environment variable: DEEPOPSCTL_DEPLOY_FORKS is `deploy --forks`.
    """
    # https://no-color.org
    ctx.color = False if os.environ.get("NO_COLOR") else None
    ctx.obj = Settings(directory=directory, verbosity=verbose, content=content)
    if ctx.get_parameter_source("directory") is click.core.ParameterSource.COMMANDLINE:
        DIRECTORY.set(str(directory))


def main() -> None:
    """Entry point of the `deepopsctl` script."""
    sys.exit(run_command_line(sys.argv[1:]))


def run_command_line(arguments: list[str]) -> int:
    """Run the command line and return the exit code; nothing escapes as a traceback below -vv."""
    token = DIRECTORY.set("")
    try:
        return _run(arguments)
    finally:
        DIRECTORY.reset(token)


def _run(arguments: list[str]) -> int:
    from deepopsctl.errors import DeepOpsError, ExitCode

    try:
        result = cli.main(args=arguments, prog_name="deepopsctl", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _interrupted(arguments)
    except click.ClickException as error:
        return _refuse_usage(error, arguments)
    except DeepOpsError as error:
        return _show(error, arguments)
    except BrokenPipeError:
        from deepopsctl.cli.output import discard

        # `deepopsctl logs gpu01 | head`: the reader has closed the pipe
        discard(sys.stdout)
        return ExitCode.OK
    except OSError as error:
        return _show(_of_the_system(error), arguments, error)
    except Exception as error:  # noqa: BLE001 (the last resort: a person gets a sentence, and -vv the traceback)
        hint = "this is a bug in deepopsctl: please report it, with the output of -vv"
        return _show(DeepOpsError(f"{type(error).__name__}: {error}", hint), arguments, error)
    return result if isinstance(result, int) else ExitCode.OK


def _of_the_system(error: OSError) -> DeepOpsError:
    """The error for a system call that failed, with its file."""
    from deepopsctl.errors import FULL, ControlMachineError

    what = f"{error.filename or 'what this command writes'}: {error.strerror or error}"
    if error.errno in FULL:
        return ControlMachineError(what, "make room: df -h says which file system is full")
    return ControlMachineError(what, "check its owner and mode: ls -l" if isinstance(error, PermissionError) else "")


def _interrupted(arguments: list[str]) -> int:
    from deepopsctl.cli.output import emit_json, info, refusal_object
    from deepopsctl.errors import ExitCode

    if _wants_json(arguments):
        emit_json(refusal_object([("", "interrupted", "")]))
    info("interrupted")
    return ExitCode.INTERRUPTED


def _refuse_usage(error: click.ClickException, arguments: list[str]) -> int:
    """Show click's errors in the form of all others; a group without a command shows its help."""
    from deepopsctl.cli.output import emit_json, refusal_object, show_problem

    if _wants_json(arguments):
        emit_json(refusal_object([("", error.format_message(), "")]))
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    usage = " ".join(context.get_usage().split()[1:]) if context else ""
    hint = f"usage: {usage}; --help lists the options" if usage else ""
    show_problem(message[:1].lower() + message[1:] if message[1:2].islower() else message, hint)
    return error.exit_code


def _show(error: DeepOpsError, arguments: list[str], cause: BaseException | None = None) -> int:
    from deepopsctl.cli.output import emit_json, errors_object, show_error
    from deepopsctl.errors import InputError

    if _wants_json(arguments):
        # standard output itself may be what is full
        with contextlib.suppress(OSError):
            emit_json(errors_object(error))
    show_error(error)
    if _verbosity(arguments) > 1 and not isinstance(error, InputError):
        click.echo("".join(traceback.format_exception(cause or error)), err=True, nl=False)
    return error.exit_code


def _wants_json(arguments: list[str]) -> bool:
    """Whether --json is there, or its environment variable: an error may come before click has read either."""
    words = [word.replace("-", "_").upper() for word in arguments if not word.startswith("-")]
    commands = (*words, *map("_".join, pairwise(words)))
    values = (os.environ.get(f"{PREFIX}_{name}_JSON", "") for name in commands)
    return "--json" in arguments or any(value.lower() not in _NO for value in values)


def _verbosity(arguments: list[str]) -> int:
    """How many -v there are: an error may come before click has counted them, or after it has dropped the count."""
    short = [word for word in arguments if word.startswith("-v") and not word.strip("-v")]
    return sum(len(word) - 1 for word in short) + arguments.count("--verbose")
