"""What `ssh setup` shows."""

from __future__ import annotations

import pytest

from deepopsctl.cli.commands.ssh import _show
from deepopsctl.ssh.results import NodeResult, SetupResult, Status


def test_a_node_sends_no_escape_sequence_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    node = NodeResult("gpu01", Status.FAILED, message="\x1b]0;title\x07\u202ebroken")

    _show(SetupResult((node,)), as_json=False)

    assert "?]0;title??broken" in capsys.readouterr().out
