from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from deepopsctl.cli.main import COMMANDS, cli
from tests.support.paths import ROOT

REFERENCE = ROOT / "docs" / "reference" / "cli.md"


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        children = command.commands.items() if isinstance(command, click.Group) else [("", command)]
        for child, leaf in children:
            yield f"{name} {child}".strip(), leaf


def options() -> list[tuple[str, str]]:
    return [
        (name, word)
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for word in (*parameter.opts, *parameter.secondary_opts)
    ]


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_command_is_in_the_reference(name: str) -> None:
    assert f"`{name}`" in REFERENCE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "word"), options())
def test_every_option_is_in_the_reference(name: str, word: str) -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    section = text.partition(f"\n## {name.split(maxsplit=1)[0]}\n")[2].partition("\n## ")[0]
    everywhere = text.partition("\n## Everywhere\n")[2].partition("\n### ")[0]
    assert f"{word}`" in section + everywhere or f"{word} " in section


def test_every_option_that_a_table_explains_is_one_of_its_commands() -> None:
    of_section: dict[str, set[str]] = {}
    for name, word in options():
        of_section.setdefault(name.split(maxsplit=1)[0], set()).add(word)
    sections = REFERENCE.read_text(encoding="utf-8").split("\n## ")
    shown = {
        (title, word)
        for title, _, text in (section.partition("\n") for section in sections)
        if title in of_section
        for row in re.findall(r"^\| (`-.*?) \|", text, re.MULTILINE)
        for word in re.findall(r"`(--[\w-]+)", row)
    }
    assert {(title, word) for title, word in shown if word not in of_section[title]} == set()


@pytest.mark.parametrize(("name", "command"), [*commands()])
def test_every_variable_of_an_option_is_named_as_the_page_says(name: str, command: click.Command) -> None:
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar:
            word = max(option.opts, key=len).removeprefix("--")
            # a second one is of its former name
            variable = option.envvar if isinstance(option.envvar, str) else option.envvar[0]
            assert variable == f"DEEPOPSCTL_{name}_{word}".upper().replace(" ", "_").replace("-", "_")


def test_the_made_parts_of_the_pages_and_llms_are_current() -> None:
    script = str(ROOT / "scripts" / "reference-pages")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
