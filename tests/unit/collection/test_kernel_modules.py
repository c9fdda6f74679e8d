"""Kernel modules that node_state loads: by a `modprobe` and a `dkms` of the test, on directories of the test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_program

kernel = nodeside.load("node.kernel")
node_step = nodeside.load("node.step")
HintedError = nodeside.load("node.errors").HintedError

WANTED = {"name": "my-mod", "loaded": True, "requires": None, "device": None, "rebuild": False, "hint": ""}
LINE = "# Written by deepopsctl; the next deploy overwrites changes made here.\nmy-mod\n"
LOADS = 'mkdir -p "$SYS/my_mod" && echo live >"$SYS/my_mod/initstate"'
REFUSES = "echo 'modprobe: ERROR: could not insert: Exec format error' >&2; exit 1"


class Node:
    """Directories like /sys/module and /etc/modules-load.d, and the commands that a node has."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sys, self.etc, self.bin = (root / name for name in ("sys", "etc", "bin"))
        for directory in (self.sys, self.etc, self.bin):
            directory.mkdir()
        monkeypatch.setattr(kernel, "LOADED", str(self.sys))
        monkeypatch.setattr(kernel, "LOAD_AT_START", str(self.etc))
        monkeypatch.setattr(kernel, "has_module", lambda name, release: True)
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        monkeypatch.setenv("SYS", str(self.sys))
        self.file = self.etc / "deepopsctl-my-mod.conf"
        self.has("modprobe", LOADS)

    def has(self, command: str, script: str) -> None:
        write_program(self.bin / command, script)

    def ensure(self, *, check_mode: bool = False, **wanted: object) -> Any:
        params = {"component": "test", "step": "modules"}
        step = node_step.Step(SimpleNamespace(check_mode=check_mode, params=params))
        kernel.ensure_module(step, {**WANTED, **wanted})
        return step

    @property
    def is_loaded(self) -> bool:
        return (self.sys / "my_mod" / "initstate").exists()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    # another account's tests may not give files to root
    monkeypatch.setattr(kernel.node_files, "owner_ids", lambda owner, group: None)
    return Node(tmp_path, monkeypatch)


def test_it_is_loaded_now_and_at_every_start(node: Node) -> None:
    step = node.ensure()

    assert node.is_loaded
    assert node.file.read_text() == LINE
    assert step.actions == [f"wrote {node.file}", "loaded my-mod"]
    assert [(change["kind"], change["action"]) for change in step.noted.changes] == [
        ("file", "write"),
        ("module", "load"),
    ]
    # the gate sees both: a module that was unloaded is loaded again
    assert set(step.record["files"]) == {str(node.file), str(node.sys / "my_mod" / "initstate")}
    assert None not in step.record["files"].values()

    # a second call changes nothing
    node.has("modprobe", REFUSES)
    assert node.ensure().actions == []


def test_check_mode_reports_the_same_and_does_nothing(node: Node) -> None:
    assert node.ensure(check_mode=True).actions == [f"wrote {node.file}", "loaded my-mod"]
    assert (node.file.exists(), node.is_loaded) == (False, False)


def test_next_to_a_module_that_is_not_loaded_it_waits_for_the_next_start(node: Node) -> None:
    assert node.ensure(requires="nvidia").actions == [f"wrote {node.file}"]
    assert not node.is_loaded

    (node.sys / "nvidia").mkdir()
    (node.sys / "nvidia" / "initstate").touch()

    assert node.ensure(requires="nvidia").actions == ["loaded my-mod"]


def test_one_that_is_not_wanted_stays_loaded_until_the_next_start(node: Node) -> None:
    node.ensure()

    step = node.ensure(loaded=False)

    assert step.actions == [f"removed {node.file}"]
    assert step.record["files"] == {str(node.file): None}
    assert not node.file.exists()
    assert node.is_loaded


def test_one_that_does_not_load_is_an_error_with_what_to_do_and_one_that_is_missing_is_named_with_the_kernel(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.has("modprobe", REFUSES)

    with pytest.raises(HintedError, match=r"modprobe my-mod: .*Exec format error") as caught:
        node.ensure(hint="install the other one")
    assert caught.value.hint == "install the other one"

    monkeypatch.setattr(kernel, "has_module", lambda name, release: False)
    monkeypatch.setattr(kernel, "running", lambda: "6.12.1")
    with pytest.raises(HintedError, match=r"there is no such module for the running kernel 6\.12\.1"):
        node.ensure()


@pytest.mark.parametrize("line", ["my-mod/2.6, 6.12.1, x86_64: installed", "my-mod, 2.6, 6.12.1, x86_64: installed"])
def test_one_that_was_built_against_something_else_is_built_again(node: Node, line: str) -> None:
    node.has("modprobe", f'[ -e "$SYS/built" ] || {{ {REFUSES}; }}; {LOADS}')
    node.has("dkms", f'[ "$1" = install ] && echo "$@" >"$SYS/built"; echo "{line}"')

    node.ensure(rebuild=True)

    assert node.is_loaded
    assert "--force my-mod/2.6 -k" in (node.sys / "built").read_text()


def test_one_that_can_not_be_built_names_the_log(node: Node) -> None:
    node.has("modprobe", REFUSES)
    node.has("dkms", 'case $1 in status) echo "my-mod/2.6, 6.12.1: added";; *) echo no compiler; exit 1;; esac')

    with pytest.raises(HintedError) as caught:
        node.ensure(rebuild=True)

    assert caught.value.hint.endswith("DKMS's last words: no compiler")


def test_a_device_that_does_not_appear_is_an_error(node: Node) -> None:
    with pytest.raises(HintedError, match="my-mod is loaded, and there is no /dev/my-mod"):
        node.ensure(device="/dev/my-mod")
