"""What stands before Open OnDemand's nginx_stage: whose server Apache may have started as root."""

from __future__ import annotations

import json
import pwd
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.web import ondemand_stage

ACCOUNTS = {"alice": 2001, "ubuntu": 1000, "root": 0, "www-data": 33}


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    (tmp_path / "stage.json").write_text(json.dumps({"least_uid": 1000, "refused": ["root", "ubuntu"]}))
    known = {
        name: pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", "/bin/bash"))
        for name, uid in ACCOUNTS.items()
    }
    monkeypatch.setattr(pwd, "getpwnam", known.__getitem__)
    return []


def call(tmp_path: Path, started: list[list[str]], *words: str, is_open: bool = True) -> int:
    return ondemand_stage.main(
        words, str(tmp_path / "stage.json"), lambda _, argv: started.append(argv), lambda *_: is_open
    )


@pytest.mark.parametrize(
    "words",
    [("pun", "-u", "alice", "-a", "%2Fx"), ("app", "-u", "alice", "-r", "x"), ("nginx", "-u", "alice", "-s", "stop")],
)
def test_a_users_server_is_started_with_what_the_portal_says(
    tmp_path: Path, started: list[list[str]], words: tuple[str, ...]
) -> None:
    assert call(tmp_path, started, *words) == 0
    assert started == [[ondemand_stage.STAGE, *words]]


@pytest.mark.parametrize(
    "words",
    [
        (), ("pun",), ("pun", "-u"), ("nginx_clean", "-u", "alice"), ("pun", "-u", "root"), ("pun", "-u", "0"),
        ("pun", "-u", "www-data"), ("pun", "-u", "ubuntu"), ("pun", "-u", "%72oot"), ("pun", "-u", "al%2Fice"),
        ("pun", "-u", "alice", "-u", "root"), ("pun", "-u", "alice", "--user", "root"),
        ("pun", "-u", "alice", "--user=root"), ("pun", "-u", "alice", "-uroot"), ("pun", "-u", "alice", "--us", "root"),
    ],
)  # fmt: skip
def test_no_one_elses_is(
    tmp_path: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert call(tmp_path, started, *words) == 1
    assert started == []
    assert capsys.readouterr().err


def test_a_closed_account_gets_no_server_and_may_stop_one(tmp_path: Path, started: list[list[str]]) -> None:
    assert call(tmp_path, started, "pun", "-u", "alice", is_open=False) == 1
    assert call(tmp_path, started, "nginx", "-u", "alice", "-s", "stop", is_open=False) == 0
    assert len(started) == 1
