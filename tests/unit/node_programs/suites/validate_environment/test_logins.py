"""Keys, expiry and homes of people on one node, with files in the place of the node's."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs.suites.validate_environment import logins

ME = pwd.getpwuid(os.getuid()).pw_name
ALICE: dict[str, Any] = {"name": "alice", "uid": 60010, "groups": [], "keys": ["ssh-ed25519 AAAA alice"]}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node on which all is well."""
    (tmp_path / "alice").write_text("# header\nssh-ed25519 AAAA alice\n")
    (tmp_path / "shadow").write_text(f"alice:*:1:0:99999:7:::\n{ME}:*:1:0:99999:7::21061:\n")
    monkeypatch.setattr(logins, "KEYS_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(logins, "SHADOW", str(tmp_path / "shadow"))
    answer = command.Result("sshd", 0, f"port 22\nauthorizedkeysfile .ssh/authorized_keys {tmp_path}/%u\n", "", 0.0)
    monkeypatch.setattr(f"{logins.__name__}.command.run", lambda *_arguments: answer)
    return tmp_path


def checks(*people: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {check["name"]: (check["status"], check["message"]) for check in logins.verify_logins("n1", people)}


def test_other_keys_and_missing_files_fail(node: Path) -> None:
    assert set(checks(ALICE).values()) == {("pass", "")}
    (node / "alice").write_text("ssh-ed25519 BBBB mallory\n")

    assert checks(ALICE, {**ALICE, "name": "bob"})["environment-keys"] == (
        "fail",
        f"{node}/alice has other keys than people.yml; {node}/bob can't be read",
    )


def test_an_sshd_that_does_not_read_them_fails(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = command.Result("sshd", 0, "authorizedkeysfile .ssh/authorized_keys\n", "", 0.0)
    monkeypatch.setattr(f"{logins.__name__}.command.run", lambda *_arguments: answer)

    assert checks(ALICE)["environment-keys"] == ("fail", f"sshd reads no keys from {node}")


@pytest.mark.parametrize(
    ("name", "expires", "message"),
    [
        (ME, "2027-08-31", ""),
        (ME, "2027-09-01", f"{ME} expires on another day than 2027-09-01"),
        (ME, "", f"{ME} expires on another day than never"),
        ("alice", "2027-08-31", "alice expires on another day than 2027-08-31"),
        ("user-of-a-directory", "2027-08-31", ""),
    ],
)
def test_expiry_is_the_declared_day(node: Path, name: str, expires: str, message: str) -> None:
    person = {"name": name, "uid": 1, "groups": [], "expires": expires}

    assert checks(person)["environment-expiry"] == ("fail" if message else "pass", message)


@pytest.mark.parametrize(
    ("home", "other", "message"),
    [
        ("", 0, ""),
        ("", 1, "HOME is not a directory of ME"),
        ("/gone", 0, "HOME/gone: No such file or directory"),
        ("/alice", 0, "HOME/alice is not a directory of ME"),
    ],
)
def test_a_home_is_a_directory_of_its_owner(
    node: Path, monkeypatch: pytest.MonkeyPatch, home: str, other: int, message: str
) -> None:
    uid = os.getuid() + other
    entry = pwd.struct_passwd([ME, "x", uid, uid, "", f"{node}{home}", "/bin/sh"])
    monkeypatch.setattr(f"{logins.__name__}.pwd.getpwnam", lambda _name: entry)

    status, text = checks({"name": ME, "uid": uid, "groups": []})["environment-homes"]

    assert (status, text) == ("fail" if message else "pass", message.replace("HOME", str(node)).replace("ME", ME))
