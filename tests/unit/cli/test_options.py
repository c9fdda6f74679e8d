"""Options that have another name now."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from deepopsctl.cli.commands.secrets import rotate
from deepopsctl.cli.options import RenamedOption


@click.command(context_settings={"auto_envvar_prefix": "TRY"})
@click.option("-x", "--exclude", cls=RenamedOption, former="--leave-out", multiple=True, help="Nodes that are off.")
@click.option("--evaluate", cls=RenamedOption, former="--judge", default="-", help="A file.")
def command(exclude: tuple[str, ...], evaluate: str) -> None:
    click.echo(f"{','.join(exclude)} {evaluate}")


@pytest.mark.parametrize(
    ("arguments", "variables", "output", "warnings"),
    [
        (["-x", "a", "--exclude", "b"], {}, "a,b -", []),
        (["--leave-out", "a"], {}, "a -", ["--leave-out is called --exclude now"]),
        (["--exclude", "a", "--leave-out", "b"], {}, "a,b -", ["--leave-out is called --exclude now"]),
        (["--judge", "f"], {}, " f", ["--judge is called --evaluate now"]),
        (["--judge", "f", "--evaluate", "g"], {}, " g", ["--judge is called --evaluate now"]),
        ([], {"TRY_LEAVE_OUT": "a b"}, "a,b -", ["TRY_LEAVE_OUT is called TRY_EXCLUDE now"]),
        (["--exclude", "c"], {"TRY_LEAVE_OUT": "a b"}, "c -", []),
        ([], {"TRY_EXCLUDE": "a b", "TRY_EVALUATE": "f"}, "a,b f", []),
    ],
)
def test_the_former_name_of_an_option_works_with_a_warning(
    arguments: list[str], variables: dict[str, str], output: str, warnings: list[str]
) -> None:
    done = CliRunner().invoke(command, arguments, env=variables)

    assert done.exit_code == 0
    assert done.stdout == f"{output}\n"
    assert [line.partition(": ")[2].partition(";")[0] for line in done.stderr.splitlines()] == warnings


def test_help_has_the_new_name_only() -> None:
    assert "--leave-out" not in CliRunner().invoke(command, ["--help"]).stdout
    text = CliRunner().invoke(rotate, ["--help"]).stdout
    assert "--exclude NODES" in text
    assert "--leave-out" not in text
