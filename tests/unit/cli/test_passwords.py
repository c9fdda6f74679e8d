"""The end of a command that is terminated."""

from __future__ import annotations

import os
import signal

import pytest

from deepopsctl.cli.passwords import terminable


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_and_a_closed_terminal_end_a_command_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), terminable():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_command_goes_on_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
