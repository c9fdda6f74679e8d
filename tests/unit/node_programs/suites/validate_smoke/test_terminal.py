"""A command on a terminal, tried with a shell."""

from __future__ import annotations

import os
from typing import Any

from deepopsctl.node_programs.suites.validate_smoke import terminal


def talk(argv: list[str], typed: str, answer: str) -> Any:
    return terminal.type_into(argv, typed, answer, os.environ | {"PS1": "$ "}, 120)


def test_a_command_is_typed_into_a_real_terminal() -> None:
    shown = talk(["bash", "--norc", "-i"], 'echo "deepops $((6*7)) here"; tty; exit\n', "deepops 42 ")

    assert "deepops 42 here" in shown.text
    assert "/dev/" in shown.text
    assert shown.rc == 0


def test_what_is_typed_is_not_taken_for_the_answer() -> None:
    shown = talk(["sh", "-c", "printf '$ '; read -r typed"], 'echo "deepops $((6*7))"\n', "deepops 42")

    assert 'echo "deepops $((6*7))"' in shown.text
    assert "deepops 42" not in shown.text


def test_a_shell_that_ends_at_once_is_no_hang() -> None:
    shown = talk(["sh", "-c", "echo no; exit 1"], "x\n", "never")

    assert shown.rc == 1
    assert "no" in shown.text
