"""Durations."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from deepopsctl.cli.commands.secrets import rotate
from deepopsctl.cli.main import cli, run_command_line
from deepopsctl.cli.options import seconds
from tests.support.runs import TEXT, cluster_dir
from tests.unit.cli.test_reference import commands


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("90", 90), ("1.5", 1.5), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("1d", 86400)],
)
def test_a_duration_is_seconds_or_has_a_unit(text: str, expected: float) -> None:
    assert seconds(click.Context(rotate), rotate.params[0], text) == expected


@pytest.mark.parametrize("text", ["", "h", "-1", "1e3", "nan", "1w", "367d", "9" * 30, "\u0663"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a valid duration"):
        seconds(click.Context(rotate), rotate.params[0], text)


# commands that log in to no node, or to nodes that are not in cluster.yml yet (`ssh setup` has -k and -K alone)
_HERE = {
    "init", "completion", "inventory", "ssh setup", "ssh config", "docs users", "docs schema", "docs show",
    "environments list", "people add", "people add-group", "people ids", "people import", "packages add",
    "packages list", "wheels list", "runs list", "runs show", "lab up", "lab down", "lab status",
}  # fmt: skip


def test_every_command_that_reaches_nodes_takes_the_connection_options() -> None:
    taken = {
        name: {option for parameter in command.params for option in parameter.opts} for name, command in commands()
    }
    wanted = {"--ask-pass", "--ask-become-pass", "--user"}

    assert {name: wanted - options for name, options in taken.items() if wanted - options and name not in _HERE} == {}
    assert taken.keys() >= _HERE


def test_nodes_groups_and_runs_are_completed(tmp_path: Path) -> None:
    directory = cluster_dir(tmp_path)
    (directory.runs / "20261121-093012-deploy").mkdir(parents=True)

    def completed(*words: str) -> list[str]:
        complete = ShellComplete(cli, {}, "deepopsctl", "_DEEPOPSCTL_COMPLETE")
        before = ["-C", str(tmp_path), *words[:-1]]
        return [item.value for item in complete.get_completions(before, words[-1])]

    assert completed("node", "drain", "cn") == ["cn1", "cn2", "cn3", "cn4"]
    groups = ["controller", "compute", "cluster"]
    assert completed("deploy", "--limit", "cn1,slurm_c") == [f"cn1,slurm_{group}" for group in groups]
    assert completed("runs", "show", "2026") == ["20261121-093012-deploy"]
    directory.people.write_text(
        "schema: 1\ngroups: [{name: lab, gid: 20001}]\npeople: [{name: ada, uid: 20002, groups: [lab]}]\n"
    )
    assert completed("people", "expire", "a") == ["ada"]
    assert completed("logs", "-C", "/nowhere", "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["completion", shell]) == 0
    assert "_DEEPOPSCTL_COMPLETE" in capsys.readouterr().out


def test_an_old_name_works_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    made = dict(commands())["upgrade os"]

    def parsed(*words: str) -> object:
        return made.make_context("os", list(words)).params["only_plan"]

    assert (parsed("--plan"), parsed("--check"), parsed()) == (True, True, False)
    monkeypatch.setenv("DEEPOPSCTL_UPGRADE_OS_PLAN", "1")
    assert parsed() is True
    assert "--plan" not in made.get_help(click.Context(made))


_DESTRUCTIVE = {
    "environments remove": ["a/1"], "people expire": ["ada", "--cancel"], "takeover": ["--finish"], "validate": ["ha"],
    "init": ["DIR", "--force"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "words"), _DESTRUCTIVE.items())
def test_a_protected_cluster_asks_before_anything_is_destroyed(
    name: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = cluster_dir(tmp_path, TEXT.replace("user: ubuntu", "user: ubuntu, protected: true"))
    before = directory.spec.read_text()
    arguments = [str(tmp_path) if word == "DIR" else word for word in words]

    assert run_command_line([*name.split(), "-C", str(tmp_path), *arguments]) == 2
    assert "give --confirm hpc" in capsys.readouterr().err
    assert run_command_line([*name.split(), "-C", str(tmp_path), *arguments, "--confirm", "lab"]) == 2
    assert "'lab' is not the name" in capsys.readouterr().err
    assert directory.spec.read_text() == before


def test_many_options_are_grouped_in_the_help() -> None:
    made = dict(commands())
    shown = made["deploy"].get_help(click.Context(made["deploy"]))

    assert re.findall(r"^(\w.*):$", shown, re.MULTILINE) == ["Options", "Login", "Run", "Questions and output"]
    assert shown.index("--tags") < shown.index("Login:") < shown.index("--user") < shown.index("--timeout")
    assert "Login:" not in made["status"].get_help(click.Context(made["status"]))
