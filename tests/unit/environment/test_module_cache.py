"""The cache of what module files say: the rendered program, with a stand-in for Lmod's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.role_templates import render

LMOD = '#!/bin/sh -eu\necho "$5" >>calls\ntouch "$4"\necho "$5" >spiderT.lua\n'


class Node:
    """The directories of a node, and the program there."""

    def __init__(self, root: Path) -> None:
        self.modules, self.private, self.public = root / "modules", root / "private", root / "public"
        for directory in (self.modules / "gcc", self.private, root / "libexec"):
            directory.mkdir(parents=True)
        self.module = self.modules / "gcc" / "14"
        self.module.write_text("#%Module1.0\n")
        self.grow_old(self.module, self.module.parent, self.modules)
        lmod = root / "libexec" / "update_lmod_system_cache_files"
        lmod.write_text(LMOD)
        lmod.chmod(0o755)
        self.program = root / "module-cache"
        paths = [str(self.modules), str(root / "no such")]
        text = render(
            "modules", "module-cache.j2",
            __modules_lmod=str(root), __modules_cache=str(self.public), __modules_cached_paths=paths,
        )  # fmt: skip
        self.program.write_text(text)

    @staticmethod
    def grow_old(*paths: Path) -> None:
        for path in paths:
            os.utime(path, (0, 0))

    def call(self, word: str) -> None:
        environment = {**os.environ, "CACHE_DIRECTORY": str(self.private)}
        subprocess.run(["sh", "-eu", self.program, word], env=environment, check=True, timeout=60)

    def collected(self) -> int:
        """How often module files were read."""
        self.call("collect")
        return len((self.private / "calls").read_text().splitlines())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_module_files_are_read_again_only_where_one_has_changed(node: Node) -> None:
    assert [node.collected(), node.collected()] == [1, 1]

    node.grow_old(node.private / "stamp")
    os.utime(node.module, (1, 1))
    assert [node.collected(), node.collected()] == [2, 2]

    # one that goes changes its directory
    node.grow_old(node.private / "stamp")
    node.module.unlink()
    assert node.collected() == 3
    assert (node.private / "calls").read_text().splitlines() == [str(node.modules)] * 3


def test_users_read_a_copy_and_what_a_module_file_put_there_leads_nowhere(node: Node, tmp_path: Path) -> None:
    node.call("collect")
    node.call("publish")
    assert (node.public / "spiderT.lua").read_text() == f"{node.modules}\n"
    assert {path.name for path in node.public.iterdir()} == {"spiderT.lua", "stamp"}

    (tmp_path / "shadow").write_text("root's")
    (node.private / "spiderT.lua").unlink()
    (node.private / "spiderT.lua").symlink_to(tmp_path / "shadow")
    node.call("publish")
    assert (node.public / "spiderT.lua").is_symlink()


@pytest.mark.parametrize("name", ["stamp", "spiderT.lua"])
def test_root_does_not_wait_for_a_pipe_that_a_module_file_made(node: Node, name: str) -> None:
    node.call("collect")
    (node.private / name).unlink()
    os.mkfifo(node.private / name)

    with pytest.raises(subprocess.CalledProcessError):
        node.call("publish")

    assert not (node.public / name).exists()


def test_without_module_files_there_is_no_cache(node: Node) -> None:
    node.call("collect")
    node.call("publish")
    node.module.unlink()
    node.module.parent.rmdir()
    node.modules.rmdir()

    node.call("collect")
    node.call("publish")

    assert list(node.public.iterdir()) == []


def test_shellcheck_finds_nothing(node: Node) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")

    assert subprocess.run([shellcheck, node.program], capture_output=True, text=True).stdout == ""
