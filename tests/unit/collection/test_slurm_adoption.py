"""What a take-over's deploy refuses on the controller, and which Slurm it takes for a foreign one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_files

adoption = nodeside.load("slurm.adoption")
running = nodeside.load("slurm.detect")

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
QUEUE = "7|ada|RUNNING|main|gpu01\n8|ada|PENDING|main|\n"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("ClusterName=hand", "ClusterName=other", "ClusterName is hand, the new slurm.conf says other"),
        ("/srv/state/", "/var/lib/x", "StateSaveLocation is /srv/state, the new slurm.conf says /var/lib/x"),
        ("SelectType=select/cons_tres\n", "", "SelectType is select/cons_tres, the new slurm.conf says nothing"),
    ],
)
def test_settings_that_slurmctld_would_forget_its_jobs_over_are_named(old: str, new: str, sentence: str) -> None:
    assert adoption.lost_settings(LIVE, CONF) == []
    assert adoption.lost_settings(LIVE, CONF.replace(old, new)) == [sentence]


@pytest.mark.parametrize("none", ["(null)", "switch/none"])
def test_channels_that_the_running_slurm_has_not_are_named_and_their_absence_is_not(none: str) -> None:
    imex = "switch/nvidia_imex"
    live, channels = {**LIVE, "SwitchType": none}, f"SwitchType={imex}\n{CONF}"

    assert adoption.lost_settings(live, CONF) == []
    assert adoption.lost_settings(live, channels) == [f"SwitchType is {none}, the new slurm.conf says {imex}"]
    assert adoption.lost_settings({**live, "SwitchType": imex}, channels) == []


def test_what_is_in_force_already_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "SlurmctldTimeout = 120 sec\nResumeTimeout = 60 sec\nPriorityType = priority/multifactor\n"
    monkeypatch.setattr(
        adoption.slurm_client, "ask", lambda *_: nodeside.load("node.command").Result("", 0, shown, "", 0.0)
    )
    new = f"{CONF}SlurmctldTimeout=120\nResumeTimeout=900\nPriorityType=priority/multifactor\n"

    changed = adoption.changed_settings(str(tmp_path / "slurm.conf"), CONF.encode(), new)

    assert [(change.key, change.old, change.new) for change in changed] == [("ResumeTimeout", "60", "900")]


def test_a_node_with_a_job_may_neither_leave_nor_be_renumbered() -> None:
    assert adoption.lost_jobs(SHOWN, QUEUE, CONF) == []
    assert adoption.lost_jobs(SHOWN, QUEUE, CONF.replace("gpu[01-02]", "gpu02")) == [
        "gpu01 is not in cluster.yml, and runs 7"
    ]
    assert adoption.lost_jobs(SHOWN, QUEUE, CONF.replace("SocketsPerBoard=2", "SocketsPerBoard=1")) == [
        "gpu01 runs 7, and its cores would be renumbered"
    ]


def test_settings_of_a_file_are_read_in_any_case_and_the_last_one_wins() -> None:
    text = b'clustername = Hand # ours\n  StoragePass="a#b"\nSlurmUser=x\nSlurmUser=slurm\n'

    assert running.settings(text.replace(b"a#b", b"ab")) == {
        "clustername": "Hand", "storagepass": "ab", "slurmuser": "slurm",
    }  # fmt: skip


def test_a_configuration_is_found_where_deepops_puts_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "slurm.conf").write_text("x")
    monkeypatch.setattr(running, "DIRECTORIES", (str(tmp_path / "a"), str(tmp_path / "b")))

    assert running.first_file("slurm.conf") == (str(tmp_path / "b" / "slurm.conf"), b"x")
    assert running.first_file("gres.conf") == ("", b"")


class TestForeign:
    """A Slurm that is on a node already."""

    @pytest.fixture
    def directory(self, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Where slurm.conf may be, on a node without daemons and records."""
        monkeypatch.setattr(running, "DIRECTORIES", (str(tmp_path),))
        monkeypatch.setattr(running, "MUNGE_KEY", str(tmp_path / "munge.key"))
        monkeypatch.setattr(running, "daemons", dict)
        return tmp_path

    def test_a_configuration_is_reported_with_its_cluster_and_key(self, directory: Path) -> None:
        assert running.foreign("slurm") == {}
        (directory / "slurm.conf").write_text("ClusterName=Hand\n")
        (directory / "munge.key").write_text("key")

        assert running.foreign("slurm") == {
            "what": f"has {directory}/slurm.conf",
            "cluster": "hand",
            "munge_key": "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683",
        }
        # its own
        (directory / "slurm.conf").write_text("# Written by deepopsctl\nClusterName=hand\n")
        assert running.foreign("slurm") == {}

    def test_daemons_are_reported_without_a_configuration_too(
        self, directory: Path, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(running, "daemons", lambda: {"slurmd": "/x", "slurmctld": "/y"})

        assert running.foreign("slurm") == {"what": "runs slurmctld and slurmd", "cluster": "", "munge_key": ""}
        # a node of an earlier deploy
        write_files(state, {"records/slurm.common.json": "{}"})
        assert running.foreign("slurm") == {}
        assert not running.deployed("monitoring")


@pytest.mark.usefixtures("state")
def test_the_unit_that_a_cut_off_call_set_aside_comes_back_where_slurm_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = nodeside.load("slurm.apply_config")
    unit, conf = tmp_path / "slurmctld.service", tmp_path / "slurm.conf"
    unit.write_text("built from source")
    conf.write_text("theirs")

    monkeypatch.setattr(adoption.node_command, "run_merged", lambda *_, **__: None)
    monkeypatch.setattr(config, "systemctl", lambda *_: None)
    monkeypatch.setattr(config, "apply", lambda *_: config.Applied("restart", "it does not answer", hung=False))
    with monkeypatch.context() as patched:
        patched.setattr(config, "install", nodeside.raising(SystemExit()))
        with pytest.raises(SystemExit):
            adoption.install({str(conf): "new"}, str(unit))

    with pytest.raises(config.NotAcceptedError):
        adoption.install({str(conf): "new"}, str(unit))

    assert (unit.read_text(), conf.read_text()) == ("built from source", "theirs")
