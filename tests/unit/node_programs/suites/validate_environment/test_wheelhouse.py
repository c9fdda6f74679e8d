"""Wheels of a wheelhouse: whole, with the recorded hash, or named."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deepopsctl.node_programs.suites.validate_environment import wheelhouse

NAME, OTHER = "numpy-2.0-py3-none-any.whl", "torch-2.9-py3-none-any.whl"


def wheel(directory: Path, name: str, content: str = "x" * 10_000) -> str:
    """Make one; returns its hash."""
    with zipfile.ZipFile(directory / name, "w") as archive:
        archive.writestr("package/__init__.py", content)
        archive.writestr(f"{name.split('-', maxsplit=1)[0]}.dist-info/METADATA", "Name: x\n")
    return hashlib.sha256((directory / name).read_bytes()).hexdigest()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"xxx", b"xxy", 1))


def test_whole_wheels_pass_also_those_that_the_site_has_built(tmp_path: Path) -> None:
    hashes = {NAME: wheel(tmp_path, NAME)}
    wheel(tmp_path, OTHER)

    (check,) = wheelhouse.verify_wheelhouse("login1", str(tmp_path), hashes)

    assert (check["status"], check["measured"], check["message"]) == ("pass", "2", "")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [(cut, "is not whole"), (flip, "has another content than when it was added"), (Path.unlink, "is missing")],
)
def test_a_damaged_wheel_is_named(tmp_path: Path, damage: Callable[[Path], None], expected: str) -> None:
    hashes = {name: wheel(tmp_path, name) for name in (NAME, OTHER)}
    damage(tmp_path / NAME)

    (check,) = wheelhouse.verify_wheelhouse("login1", str(tmp_path), hashes)

    assert (check["status"], check["measured"]) == ("fail", "1")
    assert check["message"].startswith(f"{NAME} {expected}")
    assert OTHER not in check["message"]


def test_a_truncated_wheel_of_the_sites_own_is_seen_as_well(tmp_path: Path) -> None:
    wheel(tmp_path, NAME)
    cut(tmp_path / NAME)

    assert wheelhouse.verify_wheelhouse("login1", str(tmp_path), {})[0]["status"] == "fail"


def test_hashes_that_did_not_fit_into_the_time_are_counted(tmp_path: Path) -> None:
    hashes = {name: wheel(tmp_path, name) for name in (NAME, OTHER)}

    (check,) = wheelhouse.verify_wheelhouse("login1", str(tmp_path), hashes, limit_s=-1)

    assert (check["status"], check["message"]) == ("pass", "0 of 2 hashes compared")


def test_a_wheelhouse_that_is_not_there_fails(tmp_path: Path) -> None:
    (check,) = wheelhouse.verify_wheelhouse("login1", str(tmp_path / "none"), {NAME: "0" * 64})

    assert (check["status"], check["measured"]) == ("fail", "no wheelhouse")
