"""Options that have another name now, and durations."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from deepopsctl.cli.commands.secrets import rotate
from deepopsctl.cli.options import RenamedOption, seconds


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("90", 90), ("1.5", 1.5), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1d", 86400)],
)
def test_a_duration_is_seconds_or_has_a_unit(text: str, expected: float) -> None:
    assert seconds(click.Context(rotate), rotate.params[0], text) == expected


@pytest.mark.parametrize("text", ["", "h", "-1", "1e3", "nan", "1w", "367d", "9" * 30, "\u0663"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        seconds(click.Context(rotate), rotate.params[0], text)
