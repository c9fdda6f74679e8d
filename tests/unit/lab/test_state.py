"""What is remembered of a lab, who may see it, and who may work on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deepopsctl.errors import DeepOpsError
from deepopsctl.files import write_atomic
from deepopsctl.lab.layout import LabNode
from deepopsctl.lab.state import LabDir, LabRecord, LabStore
from deepopsctl.model.cluster import Gpus, Role

RECORD = LabRecord(
    name="demo",
    os="debian12",
    gpus=Gpus("h100", 2),
    sudo_asks=True,
    nodes=(LabNode("ctl1", Role.CONTROLLER, 10), LabNode("gpu01", Role.COMPUTE, 101, Gpus("h100", 2))),
)


@pytest.fixture
def store(tmp_path: Path) -> LabStore:
    return LabStore(tmp_path / "labs")


@pytest.fixture
def lab_dir(store: LabStore) -> LabDir:
    made = store.lab_dir("demo")
    made.path.mkdir(parents=True)
    return made


def test_a_saved_lab_is_loaded_as_it_was(store: LabStore, lab_dir: LabDir) -> None:
    lab_dir.save(RECORD)
    assert lab_dir.load() == RECORD
    assert store.names() == ("demo",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_labs_files_belong_to_the_owner_of_all_labs(store: LabStore, lab_dir: LabDir, tmp_path: Path) -> None:
    lab_dir.devices.mkdir()
    os.chown(store.root, 65534, 65534)
    write_atomic(lab_dir.password, "x", 0o600)
    elsewhere = tmp_path / "nodes.yml"
    elsewhere.touch()

    lab_dir.hand_over(elsewhere)

    owners = {path.name: path.stat().st_uid for path in (lab_dir.path, lab_dir.password, elsewhere, lab_dir.devices)}
    assert owners == {"demo": 65534, "password": 65534, "nodes.yml": 65534, "devices": 0}


def test_a_lab_that_never_was_loads_as_none(store: LabStore) -> None:
    assert store.lab_dir("demo").load() is None
    assert store.names() == ()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "nodes": 3}'])
def test_a_damaged_record_says_how_to_clear_it(lab_dir: LabDir, text: str) -> None:
    lab_dir.record.write_text(text, encoding="utf-8")
    with pytest.raises(DeepOpsError, match="cannot be read") as caught:
        lab_dir.load()
    assert "lab down --name demo" in caught.value.hint


def test_two_commands_on_one_lab_are_refused_and_on_two_labs_are_not(store: LabStore) -> None:
    with (
        store.lock("demo"),
        store.lock("other"),
        pytest.raises(DeepOpsError, match="works on lab 'demo'"),
        store.lock("demo"),
    ):
        pass


def test_the_store_is_private_and_a_lock_leaves_nothing_behind(store: LabStore) -> None:
    with store.lock("demo"):
        assert store.root.stat().st_mode & 0o777 == 0o700
    assert not store.root.exists()


def test_the_store_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert LabStore.default().root == tmp_path / "deepopsctl" / "labs"


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_a_useless_xdg_state_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert LabStore.default().root == tmp_path / ".local" / "state" / "deepopsctl" / "labs"
