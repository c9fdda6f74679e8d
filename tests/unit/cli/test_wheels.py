"""`wheels add`: which node's Python the wheels are for, and which node they are copied to."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cli.commands.wheels import node_python
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import AS_DECLARED
from deepopsctl.errors import UnreachableError
from tests.support.files import write_program

SPEC = """\
schema: 1
nodes:
  - {names: "login[1-2]", roles: [login]}
  - {names: ctl1, roles: [controller, login]}
  - {names: n1, roles: [compute]}
"""


def test_the_first_node_that_answers_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yml").write_text(SPEC)
    directory = ClusterDir(tmp_path)
    up = 'case "$*" in *login1*) echo "no route" >&2; exit 255;; esac; echo 3.13 x86_64 glibc 2.41'
    monkeypatch.setenv("PATH", str(write_program(tmp_path / "bin" / "ssh", up).parent), prepend=":")

    assert node_python(directory, AS_DECLARED)[0] == "login2"
    assert "login1 can't be reached: no route" in capsys.readouterr().err
    write_program(tmp_path / "bin" / "ssh", "exit 255")
    with pytest.raises(UnreachableError, match="no login node and no controller answers"):
        node_python(directory, AS_DECLARED)
