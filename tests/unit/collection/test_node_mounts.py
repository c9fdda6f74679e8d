"""A node that is drained while its storage changes, and what a call that was cut off leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside

mount = nodeside.load("storage.mount")
node_jobs = nodeside.load("slurm.node_jobs")


class Slurm:
    """One node, in place of slurmctld."""

    def __init__(self) -> None:
        self.reason, self.answering = "", True

    def drain(self, _node: str, reason: str, _wait: int, *, dry: bool) -> bool:
        assert not dry
        self.reason = reason
        return True

    def resume(self, _node: str, reason: str, _difference: object, *, dry: bool) -> bool:
        resumed = self.answering and self.reason == reason and not dry
        self.reason = "" if resumed else self.reason
        return resumed


@pytest.fixture
def slurm(state: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    fake = Slurm()
    monkeypatch.setattr(node_jobs, "why_busy", lambda _node: "" if fake.reason else "Slurm may start jobs on it")
    monkeypatch.setattr(node_jobs, "drain", fake.drain)
    monkeypatch.setattr(node_jobs, "resume", fake.resume)
    monkeypatch.setattr(node_jobs, "answers", lambda _node: fake.answering)
    return fake


def quiet() -> Any:
    return mount.Quiet(dry=False, node="gpu01", reason="its storage", wait=0)


def test_a_drain_of_a_call_that_was_cut_off_is_ended_where_nothing_is_left_to_unmount(slurm: Slurm) -> None:
    warnings: list[str] = []
    quiet().seek()
    assert slurm.reason == "deepopsctl: its storage"

    quiet().end(warnings.append)

    assert (slurm.reason, warnings) == ("", [])
    # somebody drains it for the same reason later
    slurm.reason = "deepopsctl: its storage"
    quiet().end(warnings.append)
    assert slurm.reason == "deepopsctl: its storage"


def test_a_drain_that_slurmctld_does_not_end_is_reported_and_not_forgotten(slurm: Slurm) -> None:
    warnings: list[str] = []
    run = quiet()
    run.seek()
    slurm.answering = False
    run.end(warnings.append)

    assert warnings == ["slurmctld does not answer: `deepopsctl node resume gpu01` ends the drain for its storage"]
    slurm.answering = True
    quiet().end(warnings.append)
    assert slurm.reason == ""
