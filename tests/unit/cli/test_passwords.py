"""Passwords without a terminal, and the end of a command that is terminated."""

from __future__ import annotations

import os
import signal

import click
import pytest

from deepopsctl.cli.passwords import ask_login, terminable


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_and_a_closed_terminal_end_a_command_as_ctrl_c_does(number: signal.Signals) -> None:
    # these tests may run under nohup themselves
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), terminable():
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_command_goes_on_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("end", "error"), [(EOFError, click.UsageError), (KeyboardInterrupt, click.Abort)])
def test_an_input_that_ends_is_not_ctrl_c(
    end: type[BaseException], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`deepopsctl deploy -K </dev/null`, in cron."""

    def answer(_prompt: str) -> str:
        raise end

    monkeypatch.setattr(click.termui, "hidden_prompt_func", answer)
    with pytest.raises(error):
        ask_login({"ask_become_pass": True})
