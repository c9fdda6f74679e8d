"""The file of a plan in the place of components; what it does is in tests/integration/test_plan_file.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cli.main import run_command_line
from deepopsctl.errors import ExitCode


@pytest.mark.parametrize("words", [("--limit", "ctl1"), ("--check",), ("--full",), ("--tags", "slurm"), ("slurm",)])
def test_what_the_plan_says_is_not_said_again(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["-C", str(tmp_path), "deploy", str(tmp_path / "plan.json"), *words]) == ExitCode.USAGE
    assert "plan" in capsys.readouterr().err


def test_ask_and_check_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["-C", str(tmp_path), "deploy", "--ask", "--check"]) == ExitCode.USAGE
    assert "exclude each other" in capsys.readouterr().err
