"""Maintenance of cluster.yml as commands of scontrol, from what Slurm 24.11 shows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from tests.support import node_modules as nodeside

maintenance = nodeside.load("slurm.maintenance")
NOW = datetime(2026, 11, 25, 14, 5)  # a Wednesday
UPGRADE: dict[str, Any] = {"name": "upgrade", "start": "2026-12-01T08:00:00", "minutes": 240, "nodes": "gpu[01-04]"}
RECORD = {
    "ReservationName": "upgrade", "StartTime": "2026-12-01T08:00:00", "EndTime": "2026-12-01T12:00:00",
    "Nodes": "gpu[01-04]", "Flags": "MAINT,IGNORE_JOBS,SPEC_NODES", "State": "INACTIVE",
}  # fmt: skip


def commands(entry: dict[str, Any], record: dict[str, str] | None = None) -> list[str]:
    present = {"upgrade": record} if record else {}
    return [" ".join(argv) for argv, *_ in maintenance.commands([entry], present, [], NOW)]


def test_it_is_created_for_root_and_over_jobs_that_run() -> None:
    (line,) = commands(UPGRADE)

    assert line == (
        "create reservation reservationname=upgrade users=root nodes=gpu[01-04] flags=MAINT,IGNORE_JOBS "
        "starttime=2026-12-01T08:00:00 endtime=2026-12-01T12:00:00"
    )


def test_one_that_is_on_starts_now_and_one_that_is_over_does_not() -> None:
    on = {**UPGRADE, "start": "2026-11-25T12:00:00"}

    assert commands(on)[0].endswith("starttime=now endtime=2026-11-25T16:00:00")
    assert commands({**UPGRADE, "start": "2026-11-25T08:00:00"}) == []
    assert commands(on, RECORD) == ["update reservationname=upgrade starttime=now endtime=2026-11-25T16:00:00"]


def test_what_is_as_declared_stays_and_what_differs_is_updated() -> None:
    assert commands(UPGRADE, RECORD) == []
    assert commands({**UPGRADE, "nodes": "gpu[01-03],gpu04"}, RECORD) == []
    # a user's of the same name that is for licenses alone
    assert commands(UPGRADE, {**RECORD, "Nodes": "(null)"}) == ["update reservationname=upgrade nodes=gpu[01-04]"]

    changed = {**UPGRADE, "start": "2026-12-02T08:00:00", "nodes": "gpu[01-02]"}

    assert commands(changed, RECORD) == [
        "update reservationname=upgrade nodes=gpu[01-02] starttime=2026-12-02T08:00:00 endtime=2026-12-02T12:00:00"
    ]


def test_of_one_that_is_on_only_the_end_moves() -> None:
    record = {**RECORD, "StartTime": "2026-11-25T14:00:10", "EndTime": "2026-11-25T18:00:00", "State": "ACTIVE"}

    assert commands({**UPGRADE, "start": "2026-11-25T14:00:00", "minutes": 300}, record) == [
        "update reservationname=upgrade endtime=2026-11-25T19:00:00"
    ]


def test_one_that_is_cut_short_ends_and_a_later_one_of_that_name_stays() -> None:
    cut = {**UPGRADE, "start": "2026-11-25T12:00:00", "minutes": 60}

    assert commands(cut, {**RECORD, "StartTime": "2026-11-25T12:00:00", "State": "ACTIVE"}) == [
        "delete reservationname=upgrade"
    ]
    assert commands(cut, RECORD) == []


@pytest.mark.parametrize(
    ("repeat", "start", "following"),
    [
        ("daily", "2026-11-01T06:00:00", "2026-11-26T06:00:00"),
        ("daily", "2026-11-01T13:00:00", "2026-11-25T13:00:00"),
        ("weekly", "2026-11-02T06:00:00", "2026-11-30T06:00:00"),
        ("weekly", "2026-11-25T06:00:00", "2026-12-02T06:00:00"),
        ("weekday", "2026-11-27T06:00:00", "2026-11-27T06:00:00"),
        ("weekday", "2026-11-28T06:00:00", "2026-11-30T06:00:00"),
        ("weekend", "2026-11-02T06:00:00", "2026-11-28T06:00:00"),
    ],
)
def test_repeated_ones_are_compared_by_what_comes_next(repeat: str, start: str, following: str) -> None:
    entry = {**UPGRADE, "start": start, "repeat": repeat}

    assert maintenance.occurrence(entry, NOW)[0] == datetime.fromisoformat(following)


def test_a_repeated_one_begins_with_the_next_that_is_whole() -> None:
    entry = {**UPGRADE, "start": "2026-11-25T12:00:00", "repeat": "daily"}
    (line,) = commands(entry)
    following = {
        "StartTime": "2026-11-26T12:00:00",
        "EndTime": "2026-11-26T16:00:00",
        "Flags": "MAINT,IGNORE_JOBS,DAILY",
    }

    assert line.endswith("starttime=2026-11-26T12:00:00 endtime=2026-11-26T16:00:00")
    assert commands(entry, {**RECORD, **following}) == []


def test_another_repetition_and_a_move_of_one_that_is_on_make_it_again() -> None:
    again = ["delete", "create"]

    assert [line.split()[0] for line in commands({**UPGRADE, "repeat": "daily"}, RECORD)] == again
    assert [line.split()[0] for line in commands(UPGRADE, {**RECORD, "State": "ACTIVE"})] == again


def test_only_its_own_are_removed() -> None:
    present = {"upgrade": RECORD, "course": {**RECORD, "Flags": "DAILY"}}

    assert [argv for argv, *_ in maintenance.commands([], present, ["upgrade", "gone"], NOW)] == [
        ["delete", "reservationname=upgrade"]
    ]


def test_one_that_slurm_refuses_keeps_no_other_from_being_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, created = nodeside.plugin("modules", "slurm_maintenance"), []

    def ask(argv: list[str]) -> Result:
        if "create" not in argv:
            return Result("scontrol", 0, "No reservations in the system", "", 0.1)
        created.append(argv[3])
        refusal = "Error creating the reservation: Invalid node name specified"
        return Result("scontrol", int("nodes=gone" in argv), "", refusal, 0.1)

    monkeypatch.setattr(module, "OWNED", str(tmp_path / "owned.json"))
    monkeypatch.setattr(module.slurm_client, "ask", ask)
    start = {"start": "2099-12-01T08:00:00", "minutes": 240}
    entries = [{"name": "disks", "nodes": "gone", **start}, {"name": "upgrade", "nodes": "gpu01", **start}]

    with pytest.raises(nodeside.FailedError, match=r"^maintenance disks: .*Invalid node name specified$"):
        nodeside.Call({"maintenance": entries}).run(module)

    assert created == ["reservationname=disks", "reservationname=upgrade"]
    assert module.read_owned() == ["disks", "upgrade"]
