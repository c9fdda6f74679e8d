"""Slurm accounts that open and close between deploys, from what sacctmgr of Slurm 24.11 shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deepopsctl.environment.accounts import dates
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.services.account_dates import cli

PEOPLE = {
    "groups": [
        {"name": "def-x", "gid": 60001},
        {"name": "rrg-x", "gid": 60002, "start": "2026-04-01", "end": "2027-04-01", "shares": 2000},
    ],
    "people": [
        {"name": "alice", "uid": 60010, "groups": ["def-x"]},
        {"name": "bob", "uid": 60011, "groups": ["def-x", "rrg-x"], "expires": "2026-12-01"},
    ],
}
OPEN = (
    "root|||||1||\ndef-x|||||1||\nrrg-x|||||2000||\nrrg-x_cpu|||||1||\ndef-x|alice||||1||\ndef-x|bob||||1||\n"
    "rrg-x_cpu|bob|||5|1||\n"
)
CLOSED = OPEN.replace("rrg-x|||||2000||", "rrg-x|||0||0|0|")


class Sacctmgr:
    """sacctmgr with these associations; remembers what was changed."""

    def __init__(self, shown: str, jobs: str = "") -> None:
        self.shown, self.jobs, self.changes = shown, jobs, list[str]()

    def __call__(self, argv: Sequence[str]) -> Result:
        if argv[0] == "squeue":
            return Result(argv[0], 0, self.jobs, "", 0.1)
        if "show" not in argv:
            self.changes.append(" ".join(argv[2:]))
        return Result(argv[0], 0, self.shown, "", 0.1)


def changes(tmp_path: Path, shown: str, day: str, *options: str, jobs: str = "") -> list[str]:
    config, run = tmp_path / "config.json", Sacctmgr(shown, jobs)
    config.write_text(json.dumps(dates(PEOPLE, "hpc")), encoding="utf-8")
    assert cli.main(["--config", str(config), *options], run, datetime.fromisoformat(day).replace(tzinfo=UTC)) == 0
    return run.changes


@pytest.mark.parametrize("day", ["2026-03-31", "2027-04-01"])
def test_a_group_is_closed_before_its_start_and_from_its_end_on(tmp_path: Path, day: str) -> None:
    to_close = "modify account where name=rrg-x cluster=hpc set GrpSubmitJobs=0 GrpJobs=0 Fairshare=0"

    assert to_close in changes(tmp_path, OPEN, day)
    assert not [text for text in changes(tmp_path, CLOSED, day) if "name=rrg-x" in text]


def test_it_opens_on_its_first_day_with_its_shares_and_other_limits_stay(tmp_path: Path) -> None:
    to_open = "modify account where name=rrg-x cluster=hpc set"

    assert changes(tmp_path, OPEN, "2026-04-01") == []
    assert changes(tmp_path, CLOSED, "2026-04-01") == [f"{to_open} GrpSubmitJobs=-1 GrpJobs=-1 Fairshare=2000"]
    assert changes(tmp_path, CLOSED.replace("|0||0|0|", "|||0||"), "2026-04-01") == [f"{to_open} Fairshare=2000"]
    assert changes(tmp_path, OPEN.replace("rrg-x|||||", "rrg-x|||50||"), "2026-04-01") == []


def test_who_expires_submits_no_more_in_any_account(tmp_path: Path) -> None:
    to_close = "modify user where name=bob cluster=hpc set MaxSubmitJobs=0 MaxJobs=0"
    shut = OPEN.replace("bob|||5|1||", "bob|||0|1||0").replace("bob||||1||", "bob|||0|1||0")

    assert changes(tmp_path, OPEN, "2026-12-01") == [to_close]
    assert changes(tmp_path, shut, "2026-12-01") == []
    # of an earlier release: a job that requeues itself was submitted already
    assert changes(tmp_path, shut.replace("||0\n", "||\n"), "2026-12-01") == [to_close]


def test_who_has_expired_and_still_has_jobs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = "".join(f"bob|{number}|PENDING\n" for number in range(12)) + "bob|13_[4-9]|PENDING\n"

    changes(tmp_path, OPEN, "2026-12-01", jobs=jobs)
    printed = capsys.readouterr().out
    changes(tmp_path, OPEN, "2026-11-30", jobs=jobs)

    assert "bob has expired and still has jobs: 0 PENDING, 1 PENDING" in printed
    assert "9 PENDING, and 3 more (scancel --user=bob)" in printed
    assert "still has jobs" not in capsys.readouterr().out


def test_a_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert changes(tmp_path, OPEN, "2026-12-01", "--dry-run") == []
    assert "name=bob" in capsys.readouterr().out


def test_accounts_that_slurm_does_not_have_are_the_deploys(tmp_path: Path) -> None:
    assert changes(tmp_path, "root|||||1||\n", "2027-05-01") == []
