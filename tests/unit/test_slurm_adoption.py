"""What a take-over's deploy refuses on the controller, and which Slurm it takes for a foreign one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import nodeside

adoption = nodeside.load("slurm_adoption")
running = nodeside.load("slurm_running")

LIVE = {"ClusterName": "hand", "StateSaveLocation": "/srv/state", "SelectType": "select/cons_tres"}
CONF = """\
# Written by deepopsctl
SlurmctldHost=ctl1
ClusterName=hand
StateSaveLocation=/srv/state/
SelectType=select/cons_tres
NodeName=gpu[01-02] CPUs=2 Boards=1 SocketsPerBoard=2 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=500 Gres=gpu:2
"""
SHOWN = "\n".join(
    f"NodeName={name} Arch=x86_64 CoresPerSocket=1 CPUAlloc=1 CPUTot=2 Sockets=2 Boards=1 ThreadsPerCore=1 "
    "State=MIXED Reason=was Sockets=9 once [root@2026-11-01T00:00:00]"
    for name in ("gpu01", "gpu02")
)
QUEUE = "7|ada|RUNNING|main|gpu01|long\n8|ada|PENDING|main||later\n"


def test_the_same_settings_and_cores_cost_no_job() -> None:
    assert adoption.lost_settings(LIVE, CONF) == []
    assert adoption.lost_jobs(SHOWN, QUEUE, CONF) == []


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("ClusterName=hand", "ClusterName=other", "ClusterName is hand, the new slurm.conf says other"),
        ("/srv/state/", "/var/lib/x", "StateSaveLocation is /srv/state, the new slurm.conf says /var/lib/x"),
        ("SelectType=select/cons_tres\n", "", "SelectType is select/cons_tres, the new slurm.conf says nothing"),
    ],
)
def test_settings_that_slurmctld_would_forget_its_jobs_over_are_named(old: str, new: str, sentence: str) -> None:
    assert adoption.lost_settings(LIVE, CONF.replace(old, new)) == [sentence]


def test_a_node_with_a_job_may_neither_leave_nor_be_counted_anew() -> None:
    assert adoption.lost_jobs(SHOWN, QUEUE, CONF.replace("gpu[01-02]", "gpu02")) == [
        "gpu01 is not in cluster.yml, and runs 7"
    ]
    assert adoption.lost_jobs(SHOWN, QUEUE, CONF.replace("SocketsPerBoard=2", "SocketsPerBoard=1")) == [
        "gpu01 runs 7, and its cores would be counted anew"
    ]


def test_settings_of_a_file_are_read_in_any_case_and_the_last_one_wins() -> None:
    text = b'clustername = Hand # ours\n  StoragePass="a#b"\nSlurmUser=x\nSlurmUser=slurm\n'

    assert running.settings(text.replace(b"a#b", b"ab")) == {
        "clustername": "Hand", "storagepass": "ab", "slurmuser": "slurm",
    }  # fmt: skip


def test_a_configuration_is_found_where_deepops_puts_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "slurm.conf").write_text("x")
    monkeypatch.setattr(running, "FOLDERS", (str(tmp_path / "a"), str(tmp_path / "b")))

    assert running.first_file("slurm.conf") == (str(tmp_path / "b" / "slurm.conf"), b"x")
    assert running.first_file("gres.conf") == ("", b"")


def test_a_node_without_records_was_not_deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeside.load("node_record"), "STATE", str(tmp_path))
    assert not running.deployed("slurm")

    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "slurm.common.json").write_text("{}")

    assert running.deployed("slurm")
    assert not running.deployed("monitoring")
