"""A command on a terminal, tried with a shell."""

from __future__ import annotations

import os
from typing import Any

from deepopsctl.node_programs.validate_smoke import terminal


class TestTerminal:
    ENVIRONMENT = os.environ | {"PS1": "$ "}

    def talk(self, argv: list[str], typed: str, answer: str) -> Any:
        return terminal.type_into(argv, typed, answer, dict(self.ENVIRONMENT), 120)

    def test_a_command_is_typed_into_a_real_terminal(self) -> None:
        talk = self.talk(["bash", "--norc", "-i"], 'echo "deepops $((6*7)) here"; tty; exit\n', "deepops 42 ")

        assert "deepops 42 here" in talk.text
        assert "/dev/" in talk.text
        assert talk.rc == 0

    def test_what_is_typed_is_not_taken_for_the_answer(self) -> None:
        talk = self.talk(["sh", "-c", "printf '$ '; read -r typed"], 'echo "deepops $((6*7))"\n', "deepops 42")

        assert 'echo "deepops $((6*7))"' in talk.text
        assert "deepops 42" not in talk.text

    def test_a_shell_that_ends_at_once_is_no_hang(self) -> None:
        talk = self.talk(["sh", "-c", "echo no; exit 1"], "x\n", "never")

        assert talk.rc == 1
        assert "no" in talk.text
