"""For whom the agent acts, and what it takes for a question."""

from __future__ import annotations

import io
import json
import pwd
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared import slurm_client
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.services.web import agent, own_jobs, pam, views
from deepopsctl.node_programs.services.web.offer import RefusedError

ACCOUNTS = {
    "root": (0, "/bin/bash"), "daemon": (1, "/usr/sbin/nologin"), "slurm": (64030, "/usr/sbin/nologin"),
    "nobody": (65534, "/bin/bash"), "alice": (2001, "/bin/bash"), "left": (2002, "/usr/sbin/nologin"),
    "service": (998, "/bin/bash"),
}  # fmt: skip


def account(name: str) -> pwd.struct_passwd:
    uid, shell = ACCOUNTS[name]
    return pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", shell))


@pytest.fixture(autouse=True)
def _accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", account)


def test_it_acts_for_users() -> None:
    assert agent.account_of("alice", 1000).pw_uid == 2001


@pytest.mark.parametrize(
    "name", ["root", "daemon", "slurm", "nobody", "service", "left", "unknown", "", "alice\n", "../x", "-u", "a" * 65]
)
def test_it_acts_for_no_account_of_the_system_and_none_without_a_login(name: str) -> None:
    with pytest.raises(RefusedError, match=r"no such user|no login"):
        agent.account_of(name, 1000)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"[]\n", b"{}\n", b"no\n", b'{"ask": "exec", "user": "alice"}\n', b'{"ask": "cancel"}\n',
        b'{"ask": "cancel", "user": "root", "job": "1"}\n', b'{"ask": "states", "jobs": null}\n', b"x" * 70000,
    ],
)  # fmt: skip
def test_what_is_no_question_is_refused_before_it_becomes_anyone(
    line: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(_account: object) -> list[str]:
        raise AssertionError

    config = tmp_path / "web.json"
    config.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(agent, "CONFIG", str(config))
    monkeypatch.setattr(agent, "become", never)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line)))

    assert agent.main() == 0

    assert set(json.loads(capsys.readouterr().out)) == {"refused"}


@pytest.mark.parametrize("job", ["1; reboot", "--user=root", "", "1 2", "all", "1\n2", None, "9" * 11])
def test_only_the_number_of_a_job_is_one(job: Any) -> None:
    with pytest.raises(RefusedError, match="number of a job"):
        agent._job({"job": job})


def test_without_the_controller_no_one_is_told_that_there_is_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(argv: list[str], *_limit: float) -> Result:
        if argv[0] == "sacctmgr":
            return Result(argv[0], 0, "def-lab\n", "", 0.1)
        return Result(argv[0], 1, "", "slurm_load_partitions: Unable to contact slurm controller (connect failure)", 9)

    monkeypatch.setattr(slurm_client, "ask", ask)

    with pytest.raises(RefusedError, match="Unable to contact slurm controller") as refused:
        agent._offer(account("alice"), ["alice"], {}, {})

    assert views.trouble(str(refused.value)) == views.NO_ANSWER
    assert views.trouble("Access/permission denied") == "Access/permission denied"


def test_a_closed_account_starts_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pam, "opens", lambda *_words: False)

    with pytest.raises(RefusedError, match="closed"):
        agent.answer({"ask": "submit", "user": "alice", "wanted": {}, "environment": {}}, {})


def test_the_jobs_of_an_account_are_for_its_users_and_coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_ask", lambda argv: "def-lab\n" if "association" in argv else "def-curie\n")
    monkeypatch.setattr(own_jobs, "listed", lambda _ask, days, wanted: {"days": days, "of": wanted})

    for wanted in ("", "def-lab", "def-curie"):
        assert agent._jobs(account("alice"), [], {"account": wanted}, {})["of"] == wanted
    for wanted in ("def-bohr", "--me", "def-lab,def-bohr"):
        with pytest.raises(RefusedError, match="not an account of yours"):
            agent._jobs(account("alice"), [], {"account": wanted}, {})
