"""What slurmctld needs after a configuration that was cut off: the lab's tests do the rest with a real one."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_program

apply_config = nodeside.load("slurm.apply_config")
slurm_config = nodeside.plugin("modules", "slurm_config")
Effect = nodeside.load("slurm.effects").Effect


full = nodeside.raising(OSError(errno.ENOSPC, "No space left on device", "/etc/slurm/slurm.conf"))


def change(directory: Path, before: str, after: str, **more: bool | str) -> None:
    """Call slurm_config where this slurm.conf becomes that one."""
    (directory / "slurm.conf").write_text(before)
    files = {**dict.fromkeys(slurm_config.ALWAYS, ""), "slurm.conf": after}
    params = {"component": "slurm", "step": "c", "directory": str(directory), "files": files, **more}
    nodeside.Call(params).run(slurm_config)


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("effect", [Effect.RECONFIGURE, Effect.RESTART_SLURMCTLD])
def test_what_a_change_needs_is_noted_before_a_file_changes_and_not_forgotten(tmp_path: Path, effect: object) -> None:
    (tmp_path / "slurm.conf").mkdir()

    with pytest.raises(OSError, match=r"slurm\.conf"):
        apply_config.install({str(tmp_path / "slurm.conf"): "ClusterName=hpc\n"}, effect)

    assert apply_config.with_pending(Effect.NONE) == effect
    apply_config.clear_pending()
    assert apply_config.with_pending(Effect.NONE) == Effect.NONE


def test_a_refused_reconfiguration_says_what_slurmctld_wrote_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = (
        "slurmctld: fatal: an earlier one\nslurmctld: Processing Reconfiguration Request\n"
        "slurmctld: fatal: CLUSTER ID MISMATCH.\nthe DBD thinks it should be 1639.\nslurmctld: Resuming operation\n"
    )
    (tmp_path / "journal").write_text(journal)
    write_program(tmp_path / "bin" / "journalctl", f"cat {tmp_path}/journal")
    program = write_program(
        tmp_path / "bin" / "scontrol", "echo slurm_reconfigure error: Unspecified error >&2; exit 1"
    )
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(apply_config, "controller_answers", lambda _: True)

    assert apply_config.reconfigure(1) == (
        "slurm_reconfigure error: Unspecified error; fatal: CLUSTER ID MISMATCH. the DBD thinks it should be 1639.",
        False,
    )


def test_a_slurmctld_that_was_stopped_to_copy_its_state_starts_again_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(apply_config, "syntax_error", lambda _files: "")
    monkeypatch.setattr(apply_config, "would_serve", lambda _effect: ["restart"])
    monkeypatch.setattr(apply_config, "with_pending", lambda effect: effect)
    monkeypatch.setattr(apply_config, "copy_state", lambda _old, _new: calls.append("stop"))
    monkeypatch.setattr(apply_config, "serve", full)
    monkeypatch.setattr(apply_config, "systemctl", lambda words, _limit: calls.extend(words))
    conf = "# Written by deepopsctl\nClusterName=hpc\nStateSaveLocation="

    with pytest.raises(nodeside.FailedError, match=r"the old configuration is still in force: .*No space left"):
        change(tmp_path, conf + "/old\n", conf + "/new\n", move_state=True)

    assert calls == ["stop", "start"]


def test_a_full_disk_ends_an_adoption_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_config.slurm_adoption, "refusals", lambda _text: [])
    monkeypatch.setattr(slurm_config.slurm_adoption, "install", full)
    monkeypatch.setattr(apply_config, "syntax_error", lambda _files: "")

    with pytest.raises(nodeside.FailedError, match="No space left on device"):
        change(tmp_path, "ClusterName=hpc\n", "ClusterName=hpc\n", adopt=True)


@pytest.mark.parametrize(("waiting", "is_refused"), [("refused", True), ("held", True), ("kept", False)])
def test_only_a_restore_closes_partitions_without_a_slurmctld_to_ask_about_waiting_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: str, is_refused: bool
) -> None:
    program = write_program(tmp_path / "bin" / "squeue", "echo Unable to contact slurm controller >&2; exit 1")
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    before = "# Written by deepopsctl\nClusterName=hpc\nPartitionName=gpu Nodes=n1 State=UP\n"
    after = before.replace("State=UP", "State=DOWN")

    with pytest.raises(nodeside.FailedError, match="Slurm does not say which") if is_refused else nullcontext():
        change(tmp_path, before, after, verify=True, primary=True, waiting_jobs=waiting)
