"""The command line of `deepopsctl lab`, as far as it goes without podman."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deepopsctl.cli.commands import lab
from deepopsctl.cli.main import run_command_line
from deepopsctl.errors import DeepOpsError, ExitCode
from deepopsctl.lab import manage
from deepopsctl.lab.state import LabStore
from tests.support.files import write_program


@pytest.mark.parametrize(
    "arguments",
    [["--gpus", "h100"], ["--gpus", "h100:99"], ["--compute", "0"], ["--compute", "151"], ["--os", "debian11"]],
)
def test_wrong_options_are_usage_errors(arguments: list[str]) -> None:
    assert run_command_line(["lab", "up", *arguments]) == ExitCode.USAGE


def test_a_wrong_name_is_invalid_input_and_json_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["lab", "up", "--name", "../x", "--json"]) == ExitCode.INVALID_INPUT
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["errors"][0]["where"] == "--name"


def test_without_podman_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run_command_line(["lab", "status"]) == ExitCode.CONTROL_MACHINE
    assert "apt-get install --no-install-recommends podman" in capsys.readouterr().err


def test_a_lab_that_another_command_works_on_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone: list[str] = []

    def down(_store: LabStore, name: str) -> int:
        if name == "one":
            raise DeepOpsError("another command works on lab 'one'", "wait for it")
        gone.append(name)
        return 3

    labs = [manage.LabStatus(name, "debian13", (), None, None) for name in ("one", "two")]
    monkeypatch.setattr(manage, "status", lambda _: labs)
    monkeypatch.setattr(manage, "down", down)
    monkeypatch.setattr(lab, "_become_root", lambda: None)

    assert run_command_line(["lab", "down", "--all"]) == ExitCode.FAILED
    assert gone == ["two"]
    assert "works on lab 'one'" in capsys.readouterr().err


def test_a_directory_that_is_not_there_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["lab", "up", "--output", "/nowhere/at/all/nodes.yml"]) == ExitCode.INVALID_INPUT
    assert "there is no directory /nowhere/at/all" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_a_user_goes_on_by_sudo_with_files_of_the_user(command: str) -> None:
    other = 65534
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        home = Path(directory)
        home.chmod(0o755)
        write_program(home / "sudo", 'printf "%s\\n" "$@"')
        (home / "state").mkdir()
        os.chown(home / "state", other, other)
        environment = {"PATH": f"{home}:/usr/bin:/bin", "XDG_STATE_HOME": str(home / "state"), "NO_COLOR": "1"}
        environment |= {"DEEPOPSCTL_LAB_UP_COMPUTE": "3", "DEEPOPSCTL_OTHER": "stays"}
        # checkouts are often below a directory that is root's alone: the user takes over once all is imported
        script = (
            "import os, sys\nimport deepopsctl.lab.create, deepopsctl.lab.manage, deepopsctl.lab.image\n"
            "from deepopsctl.cli.commands import lab\nfrom deepopsctl.cli.main import run_command_line\n"
            f"os.setgid({other}); os.setuid({other})\n"
            "sys.exit(run_command_line(sys.argv[1:]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, "lab", command], env=environment, capture_output=True, text=True, check=False
        )
        owner = (home / "state" / "deepopsctl" / "labs").stat().st_uid

    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:2] == ["--", "env"]
    assert f"XDG_STATE_HOME={home / 'state'}" in words
    assert "DEEPOPSCTL_LAB_UP_COMPUTE=3" in words
    assert "DEEPOPSCTL_OTHER=stays" not in words
    assert words[-2:] == ["lab", command]
    assert owner == other
