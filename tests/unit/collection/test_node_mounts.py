"""A node that is drained while its storage changes, and what a call that was cut off leaves."""

from __future__ import annotations

import pwd
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
    # a user drains it for the same reason later
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


UNIT = "[Mount]\nWhat={what}\nWhere=/home\nType={kind}\n"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "beegfs", "ceph", "fuse.glusterfs"])
@pytest.mark.parametrize("path", ["/home", "/home/ada", "/"])
def test_a_file_server_over_the_home_of_the_deploying_user_is_refused(
    kind: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    account = pwd.struct_passwd(("ada", "x", 1000, 1000, "", "/home/ada", "/bin/sh"))
    monkeypatch.setattr(mount.pwd, "getpwnam", lambda _name: account)
    unit = mount.mount_table.parse_unit(UNIT.format(what="ctl1:/srv", kind=kind))

    with pytest.raises(mount.node_errors.HintedError, match="the home of ada, who may become root here"):
        mount.check_login_home({"name": "home", "path": path}, unit)


@pytest.mark.parametrize(
    ("kind", "path"), [("xfs", "/home"), ("nfs4", "/homes"), ("nfs4", "/home/bea"), ("nfs4", "/data")]
)
def test_other_mounts_are_no_matter_of_that_home(kind: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    account = pwd.struct_passwd(("ada", "x", 1000, 1000, "", "/home/ada", "/bin/sh"))
    monkeypatch.setattr(mount.pwd, "getpwnam", lambda _name: account)

    mount.check_login_home({"name": "x", "path": path}, mount.mount_table.parse_unit(UNIT.format(what="x", kind=kind)))
