"""The command line of `deepopsctl lab`, as far as it goes without podman."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from deepopsctl.cli import cli, run
from deepopsctl.errors import ExitCode


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_help_needs_no_podman(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = CliRunner().invoke(cli, ["lab", command, "--help"])
    assert result.exit_code == 0
    assert "--name" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [["--gpus", "h100"], ["--gpus", "h100:99"], ["--compute", "0"], ["--compute", "151"], ["--os", "debian11"]],
)
def test_wrong_options_are_usage_errors(arguments: list[str]) -> None:
    assert run(["lab", "up", *arguments]) == ExitCode.USAGE


def test_a_wrong_name_is_invalid_input_and_json_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "up", "--name", "../x", "--json"]) == ExitCode.INVALID_INPUT
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["errors"][0]["where"] == "--name"


def test_a_machine_without_podman_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(["lab", "status"]) == ExitCode.CONTROL_MACHINE
    assert "apt-get install --no-install-recommends podman" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "up", "--output", "/nowhere/at/all/nodes.yml"]) == ExitCode.INVALID_INPUT
    assert "there is no folder /nowhere/at/all" in capsys.readouterr().err
