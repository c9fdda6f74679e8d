"""Owners of GPUs that do nothing: told once, what is true, and nothing that a node or a user made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared import slurm_client
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.services.job_mail import idle_gpus, spool
from deepopsctl.node_programs.services.job_mail.idle_gpus import Owned, Watch
from deepopsctl.node_programs.services.job_mail.spool import Mail, RefusedError

CONFIG = {"minutes": 60, "percent": 2}
JOBS = {"7": Owned("alice", "2001", frozenset({"gpu01"})), "8": Owned("bob", "2002", frozenset({"gpu02"}))}


def series(number: str, node: str, count: int) -> dict[str, Any]:
    return {"metric": {"jobid": number, "node": node}, "value": [0, str(count)]}


class Site:
    """Prometheus' answers, jobs that run, and the mails."""

    def __init__(self, state: Path, *idle: dict[str, Any], jobs: Mapping[str, Owned] = JOBS) -> None:
        self.idle, self.every, self.running = list(idle), [series("7", "gpu01", 4), series("8", "gpu02", 1)], jobs
        self.asked: list[str] = []
        self.mails: list[tuple[Mail, str]] = []
        self.refuses = False
        self.watch = Watch(CONFIG, self.query, self.jobs, self.put, str(state / "notified.json"))

    def query(self, text: str, _at: int) -> list[dict[str, Any]]:
        self.asked.append(text)
        return self.idle if "max_over_time" in text else self.every

    def jobs(self, numbers: list[str]) -> Mapping[str, Owned]:
        return {number: self.running[number] for number in numbers if number in self.running}

    def put(self, mail: Mail, uid: str) -> None:
        if self.refuses:
            raise RefusedError("10,000 mails wait")
        self.mails.append((mail, uid))


def test_an_owner_is_told_once_also_over_restarts(tmp_path: Path) -> None:
    idle = series("7", "gpu01", 3)
    site = Site(tmp_path, idle)

    assert [site.watch.round(1000.0), site.watch.round(1300.0)] == [1, 0]
    assert Site(tmp_path, idle).watch.round(1600.0) == 0
    ((mail, uid),) = site.mails
    assert (mail.address, uid, mail.subject) == ("alice", "2001", "Slurm Job_id=7: 3 of its 4 GPUs do nothing")
    assert "On gpu01, for 60 minutes: below 2 % use" in mail.text
    assert "scancel 7" in mail.text
    assert "[3600s]" in site.asked[0]
    assert "< 0.02" in site.asked[0]


def test_who_could_not_be_told_is_told_later(tmp_path: Path) -> None:
    site = Site(tmp_path, series("8", "gpu02", 1))
    site.refuses = True
    assert site.watch.round(1000.0) == 0
    site.refuses = False

    assert site.watch.round(1300.0) == 1
    assert site.mails[0][0].subject == "Slurm Job_id=8: its GPU does nothing"


@pytest.mark.parametrize(
    "made_up",
    [
        series("7", "gpu02", 8),
        series("9", "gpu01", 1),
        series("--user=root", "gpu01", 1),
        series("7,8", "gpu01", 1),
        series("", "gpu01", 1),
        series("7\n8", "gpu01", 1),
    ],
)
def test_a_node_says_nothing_of_jobs_that_do_not_run_there(tmp_path: Path, made_up: dict[str, Any]) -> None:
    site = Site(tmp_path, made_up)

    assert site.watch.round(1000.0) == 0
    assert not site.mails


def test_of_a_job_on_two_nodes_only_what_is_idle_on_its_own_counts(tmp_path: Path) -> None:
    site = Site(tmp_path, series("7", "gpu01", 2), series("7", "evil", 90))

    site.watch.round(1000.0)

    assert site.mails[0][0].subject == "Slurm Job_id=7: 2 of its 4 GPUs do nothing"


def test_slurm_says_whose_a_job_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(argv: list[str], *_: Any) -> Result:
        asked.append(argv)
        return Result("squeue", 0, "7|alice|2001|gpu[01-02]\n", "", 0.0)

    monkeypatch.setattr(slurm_client, "ask", ask)

    assert idle_gpus.running(["7", "9"]) == {"7": Owned("alice", "2001", frozenset({"gpu01", "gpu02"}))}
    assert "--jobs=7,9" in asked[0]


def test_an_address_is_slurms_and_of_a_domain_that_mail_goes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_gpus, "SPOOL", str(tmp_path))
    put = idle_gpus._putting(["example.com"], "hpc.example.com")
    mail = Mail("alice", "s", "7", "IDLE_GPUS", 0.0, "text")

    put(mail, "2001")

    (kept,) = [spool.read(path) for path in spool.waiting(str(tmp_path))]
    assert kept == mail._replace(address="alice@hpc.example.com")
    for evil in ("alice bob", "-oQ/tmp", "a\nBcc: x"):
        with pytest.raises(RefusedError):
            put(mail._replace(address=evil), "2001")
    with pytest.raises(RefusedError):
        idle_gpus._putting(["example.com"], "elsewhere.org")(mail, "2001")


def test_a_damaged_list_of_who_was_told_tells_no_one_twice(tmp_path: Path) -> None:
    (tmp_path / "notified.json").write_text("{", encoding="utf-8")

    with pytest.raises(ValueError, match=r"notified\.json is damaged"):
        Site(tmp_path, series("7", "gpu01", 3)).watch.round(1000.0)
