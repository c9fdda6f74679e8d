from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.way import Way
from tests.support.files import write_program

SPEC = """\
schema: 1
cluster: {name: hpc, user: op}
nodes: [{names: n1, addresses: 192.0.2.1, roles: [controller, compute]}]
"""
# asks as sudo does: once for each line that it gets, and not again for a command of the same shell
SUDO = """\
echo "$*" >> argv
if [ "$1" = -S ]; then IFS= read -r given && [ "$given" = right ] && touch granted; exit; fi
[ "$1" = -n ] && test -e granted && shift && exec "$@"
"""


@pytest.fixture
def way(tmp_path: Path) -> Way:
    (tmp_path / "cluster.yml").write_text(SPEC, encoding="utf-8")
    directory = ClusterDir(tmp_path)
    return Way(directory, directory.cluster(), "op", {})


def remote(way: Way, words: list[str], *, as_root: bool = True) -> list[str]:
    """What the node's shell is told."""
    return shlex.split(way.command(way.cluster.nodes[0], words, as_root=as_root)[-1])


def test_sudo_asks_for_no_password_that_was_not_given(way: Way) -> None:
    assert remote(way, ["id"]) == ["sudo", "-n", "id"]
    assert remote(way, ["id"], as_root=False) == ["id"]
    assert way.data(b"text") == b"text"


@pytest.mark.parametrize(("password", "output"), [("right", b"a line\n"), ("wrong", b"")])
def test_a_password_is_read_before_the_input_and_tried_once(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str, output: bytes
) -> None:
    program = write_program(tmp_path / "bin" / "sudo", SUDO)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.chdir(tmp_path)
    asking = Way(way.directory, way.cluster, way.user, way.options, sudo_password=password)

    done = subprocess.run(remote(asking, ["cat"]), input=asking.data(b"a line\n"), capture_output=True, check=False)

    assert done.stdout == output
    assert (done.returncode == 0) == bool(output)
    calls = (tmp_path / "argv").read_text().splitlines()
    assert calls == ["-S -p  -v", *(["-n cat"] if output else [])]
    assert password not in repr(asking)


def test_root_needs_no_sudo(way: Way) -> None:
    root = Way(way.directory, way.cluster, "root", way.options, sudo_password="right")

    assert remote(root, ["id"]) == ["id"]
    assert root.data(b"text") == b"text"
