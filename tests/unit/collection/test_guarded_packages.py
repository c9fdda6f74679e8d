"""Packages that apt holds for everybody but deepopsctl; apt-mark and dpkg-query are programs of the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared.command import Result
from tests.support import node_modules as nodeside
from tests.support.files import write_program

packages = nodeside.load("node.packages")


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with munge, slurmd and a package that a user holds; `held` has a line for each that is held."""
    (tmp_path / "held").write_text("site-driver\n")
    mark = (
        f"cd {tmp_path}; how=$1; shift; case $how in showhold) cat held ;;"
        ' hold) printf "%s\\n" "$@" >>held ;;'
        ' unhold) for name; do grep -vxF "$name" held >new; mv new held; done ;; esac'
    )
    write_program(tmp_path / "bin" / "apt-mark", mark)
    query = (
        f'shift 2; [ $# -gt 0 ] || sed "s/$/ hold installed 1.0/" {tmp_path}/held;'
        ' for name; do echo "$name install installed 1.0"; done'
    )
    write_program(tmp_path / "bin" / "dpkg-query", query)
    program = write_program(
        tmp_path / "bin" / "apt-get", f"cp {tmp_path}/held {tmp_path}/held-during-apt; exit ${{FAIL:-0}}"
    )
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(packages, "GUARDED", str(tmp_path / "guarded"))
    monkeypatch.setattr(packages, "POLICY", str(tmp_path / "policy-rc.d"))
    monkeypatch.setattr(packages.node_services, "main_pids", lambda units: dict.fromkeys(units, 0))
    return tmp_path


def held(node: Path, name: str = "held") -> set[str]:
    return set((node / name).read_text().split())


def test_they_are_held_next_to_what_others_hold(node: Path) -> None:
    packages.guard(["munge", "slurmd"])

    assert held(node) == {"munge", "slurmd", "site-driver"}
    assert packages.guarded() == {"munge", "slurmd"}


def test_what_is_no_longer_guarded_is_released_and_holds_of_others_stay(node: Path) -> None:
    packages.guard(["munge", "slurmd"])

    packages.guard(["slurmd"])
    assert held(node) == {"slurmd", "site-driver"}
    packages.guard([])
    assert held(node) == {"site-driver"}


@pytest.mark.parametrize("fails", ["0", "1"])
def test_deepopsctls_own_apt_releases_its_own_alone_and_holds_them_again(
    node: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    packages.guard(["munge", "slurmd"])
    monkeypatch.setenv("FAIL", fails)

    result = packages._apt(["install", "munge"], 0)

    assert result.ok is (fails == "0")
    assert held(node, "held-during-apt") == {"site-driver"}
    assert held(node) == {"munge", "slurmd", "site-driver"}


def test_another_package_manager_is_waited_for_before_they_are_released(node: Path) -> None:
    packages.guard(["munge"])
    # apt-mark fails twice, as dpkg is locked
    (node / "locked").write_text("2")
    apt_mark = node / "bin" / "apt-mark"
    locked = (
        f'#!/bin/sh\nleft=$(cat {node}/locked)\n[ "$left" = 0 ] || {{ echo $((left - 1)) >{node}/locked; '
        'echo "dpkg: error: dpkg frontend lock was locked by unattended-upgr process with pid 7" >&2; exit 1; }\n'
    )
    apt_mark.write_text(locked + apt_mark.read_text())

    refused = packages._apt(["install", "munge"], 0)
    assert "another package manager works on this node" in packages._hint(refused.message)
    assert held(node) == {"munge", "site-driver"}
    assert packages._apt(["install", "munge"], time.monotonic() + 30).ok
    assert held(node) == {"munge", "site-driver"}


def test_the_wait_for_another_package_manager_ends_with_the_deadline(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.guard(["munge"])
    (node / "bin" / "apt-mark").write_text("#!/bin/sh\necho locked >&2; exit 1\n")
    waits: list[float] = []

    def wait_until(ask: Callable[[], Result], seconds: float, *_: object) -> Result:
        waits.append(seconds)
        return ask()

    monkeypatch.setattr(packages, "wait_until", wait_until)

    assert not packages._apt(["install", "munge"], time.monotonic() + 30).ok
    assert 0 < waits[0] <= 30


def test_the_gate_sees_the_holds_that_dpkg_has(node: Path) -> None:
    packages.guard(["munge"])

    assert packages.held() == {"munge", "site-driver"}
