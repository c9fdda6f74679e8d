"""`usage` on login nodes: what root counts every hour, and what of it each user may read."""

from __future__ import annotations

import json
import os
import pwd
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.commands.account_usage import accounting, cli, documents
from deepopsctl.node_programs.commands.account_usage.accounting import Use
from deepopsctl.node_programs.commands.job_report import summary
from deepopsctl.node_programs.commands.job_report.asking import UnansweredError
from deepopsctl.node_programs.commands.job_report.summary import GpuUse, Summary
from deepopsctl.node_programs.commands.user_commands import usage

ME = pwd.getpwuid(os.getuid()).pw_name
SHARES = f"""root|||1
def-curie|root||3
def-curie_gpu|def-curie||1
def-curie||{ME}|1
def-curie_gpu||{ME}|1
def-curie_gpu||nobody|1
def-bohr|root||1
def-bohr||nobody|1
def-bohr||../evil|1
def-bohr||ghost-of-nobody|1
"""
# a job of 10 hours with one A100, and one of a partition without GPUs
JOB = "{account}|{user}|{partition}|36000|billing=4000,cpu=12|{start}\n"
WANTED = {"cluster": "hpc", "capacity": 32.0, "gpu_partitions": ["gpu"]}
NOON = int(time.mktime((2026, 11, 25, 12, 0, 0, 0, 0, -1)))


class Slurm:
    """sacctmgr and sacct, the latter by the period that it is asked about."""

    def __init__(self, private: str = "none", jobs: str = "", coordinators: str = "") -> None:
        self.private, self.jobs, self.coordinators = private, jobs, coordinators
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str]) -> str:
        if argv[0] == "sacct":
            self.asked.append(" ".join(word for word in argv if word.startswith(("--starttime", "--endtime"))))
            return self.jobs
        if "config" in argv:
            return f"SlurmDBD configuration:\nPrivateData            = {self.private}\n"
        return self.coordinators if "withcoord" in argv else SHARES


# of the accounting, as `usage` asks it: a job of 10 hours with two GPUs, of which monitoring saw one in use
SEEN = summary.write(
    Summary(gpus=tuple(GpuUse("gpu01", gpu, use, use, 1e9, 8e9) for gpu, use in (("0", 0.5), ("1", 0))))
)
ENDED = ("{user}", "def-curie", "36000", "12", "cpu=12,gres/gpu=2", SEEN)


def accounting_says(argv: Sequence[str]) -> str:
    """sacct and sacctmgr for a user: their own jobs, with `--allusers` those of all."""
    if argv[0] == "sacctmgr":
        return "def-curie\ndef-curie_gpu\n" if "association" in argv else "def-noether\n"
    users = [ME, "nobody"] if "--allusers" in argv else [ME]
    return "".join("\x1f".join(ENDED).replace("{user}", user) + "\n" for user in users)


def no_answer(argv: Sequence[str]) -> str:
    raise UnansweredError(f"{argv[0]}: Connection refused")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    answers = Slurm(
        jobs=JOB.format(account="def-curie_gpu", user=ME, partition="gpu", start=NOON - 100)
        + JOB.format(account="def-curie_gpu", user="nobody", partition="gpu", start=NOON - 100)
    )
    monkeypatch.setattr(cli, "ask", answers)
    return answers


def account(directory: Path) -> dict[str, Any]:
    """The one account in my file."""
    (entry,) = json.loads((directory / f"{ME}.json").read_text())["accounts"]
    return dict(entry)


def test_each_user_gets_a_file_that_others_can_not_read(slurm: Slurm, tmp_path: Path) -> None:
    assert cli.write_all(WANTED, str(tmp_path), NOON) == 2

    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    # a name that no user has here, or that can't be a file's, gets none
    assert files == {f"{ME}.json": 0o400, "nobody.json": 0o400, cli.STATE: 0o600}
    assert (tmp_path / "nobody.json").stat().st_uid == pwd.getpwnam("nobody").pw_uid


def test_it_has_ones_own_use_and_that_of_the_group(slurm: Slurm, tmp_path: Path) -> None:
    cli.write_all(WANTED, str(tmp_path), NOON)

    entry = account(tmp_path)
    # each period of a run answers the same here
    assert entry["name"] == "def-curie"
    assert entry["share"] == 0.75
    assert entry["own"] == documents.numbers(Use(1, 80.0, 0.0)) | {"jobs": 2}
    assert [each["name"] for each in entry["users"]] == sorted([ME, "nobody"])


@pytest.mark.parametrize("private", ["usage", "accounts,jobs"])
def test_where_slurm_hides_what_others_use_so_does_this(slurm: Slurm, tmp_path: Path, private: str) -> None:
    slurm.private = private
    cli.write_all(WANTED, str(tmp_path), NOON)

    entry = account(tmp_path)
    assert (entry["total"], entry["users"]) == (None, [])
    assert entry["own"]["rgu_hours"] == 80.0
    assert "nobody" not in (tmp_path / f"{ME}.json").read_text()

    slurm.coordinators = f"root|\ndef-curie|{ME}\n"
    cli.write_all(WANTED, str(tmp_path), NOON)
    assert [each["name"] for each in account(tmp_path)["users"]] == sorted([ME, "nobody"])


def test_days_that_are_over_are_asked_about_once(slurm: Slurm, tmp_path: Path) -> None:
    cli.write_all(WANTED, str(tmp_path), NOON)
    first, slurm.asked = slurm.asked, []
    cli.write_all(WANTED, str(tmp_path), NOON + 3600)

    assert first[0].startswith("--starttime=2026-01-01T00:00:00 --endtime=2026-11-24T12:00:00")
    assert slurm.asked == [
        "--starttime=2026-11-24T12:00:00 --endtime=2026-11-24T13:00:00",
        "--starttime=2026-11-24T13:00:00 --endtime=2026-11-25T13:00:00",
    ]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"start": 1}', '{"start": 0, "until": 1, "used": []}'])
def test_a_damaged_record_is_read_again_from_the_year_on(slurm: Slurm, tmp_path: Path, damage: str) -> None:
    (tmp_path / cli.STATE).write_text(damage)

    cli.write_all(WANTED, str(tmp_path), NOON)

    assert slurm.asked[0].startswith("--starttime=2026-01-01")


def test_a_job_that_runs_on_counts_once(slurm: Slurm, tmp_path: Path) -> None:
    # both periods have it; it started in the first
    slurm.jobs = JOB.format(account="def-curie", user=ME, partition="cpu", start=NOON - 90_000)
    began = int(time.mktime((2026, 1, 1, 0, 0, 0, 0, 0, -1)))
    assert began < NOON - 90_000 < NOON - cli.DAY_S

    cli.write_all(WANTED, str(tmp_path), NOON)

    own = account(tmp_path)["own"]
    assert own == documents.numbers(Use(1, 0.0, 80.0))


def test_who_is_no_longer_in_slurm_loses_the_file(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text("{}")

    cli.write_all(WANTED, str(tmp_path), NOON)

    assert not (tmp_path / "gone.json").exists()


def test_the_command_shows_a_line_for_each_account_and_its_user(
    slurm: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.write_all(WANTED, str(tmp_path), NOON)

    assert usage.main(["--users"], str(tmp_path), accounting_says) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hpc, 2026-01-01 to 2026-11-25 12:00"
    assert lines[2].split()[:3] == ["account", "jobs", "RGU-hours"]
    assert [line.split()[0] for line in lines[3:6]] == ["def-curie", ME, "nobody"]
    assert lines[4].split()[1:4] == ["(you)", "2", "80.00"]


def test_without_billing_it_shows_what_jobs_had_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert usage.main([], str(tmp_path), accounting_says) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Jobs that have ended in the last 30 days"
    assert lines[3].split() == ["def-curie", ME, "1", "120.0", "20.0", "20.0", "5.0", "15.0", "25", "%"]
    assert len(lines) == 4


def test_json_has_the_sums_of_others_with_users_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, users in (([], [ME]), (["--users"], sorted([ME, "nobody"]))):
        assert usage.main(["--json", *options], str(tmp_path), accounting_says) == 0
        document = json.loads(capsys.readouterr().out)
        assert [row["user"] for row in document["recent"]["rows"]] == users
        assert {row["gpu_hours_idle"] for row in document["recent"]["rows"]} == {15.0}


def test_the_command_says_what_it_can_not_show(
    slurm: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage.main([], str(tmp_path), no_answer) == 1
    assert "Connection refused" in capsys.readouterr().err
    cli.write_all(WANTED, str(tmp_path), NOON)
    # what was counted is there all the same
    assert usage.main([], str(tmp_path), no_answer) == 0
    assert "def-curie" in capsys.readouterr().out
    assert usage.main(["def-bohr"], str(tmp_path), accounting_says) == 1
    assert "def-bohr is not an account of yours: def-curie, def-curie_gpu, def-noether" in capsys.readouterr().err
    # one that the user coordinates
    assert usage.main(["def-noether"], str(tmp_path), accounting_says) == 0


def test_an_account_includes_those_below_it() -> None:
    used = {"a": {"x": Use(1, 1.0)}, "b": {"x": Use(1, 2.0)}, "c": {"y": Use(1, 4.0)}}

    assert accounting.total_of("a", {"a": "", "b": "a", "c": ""}, used) == {"x": Use(2, 3.0)}
