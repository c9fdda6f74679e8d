"""Whether a node has what Slurm's settings need: real files, modes and mounts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import slurm_needs


def script(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def faults(**needs: object) -> list[str]:
    return [entry["message"] for entry in slurm_needs.unmet(needs)]


def of_program(path: str, **more: object) -> list[str]:
    return faults(programs=[{"key": "Prolog", "path": path, **more}])


@pytest.fixture
def readable(tmp_path: Path) -> Path:
    """A directory that everybody may enter, as pytest's own are not."""
    for directory in [tmp_path, *tmp_path.parents]:
        if directory.stat().st_uid == os.getuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o111)
    return tmp_path


def test_a_program_that_can_be_run_and_a_pattern_without_a_match_are_fine(readable: Path) -> None:
    path = script(readable / "prolog")

    assert of_program(path) == []
    assert of_program(path, user=True) == []
    assert of_program(f"{readable}/none.d/*") == []
    assert faults(programs=[{"key": "HealthCheckProgram", "path": "/bin/true"}]) == []


def test_where_slurm_knows_no_patterns_one_is_the_name_of_a_file(tmp_path: Path) -> None:
    pattern = f"{script(tmp_path / 'check')}*"

    assert faults(programs=[{"key": "HealthCheckProgram", "path": pattern}]) == [
        f"HealthCheckProgram={pattern} is not there"
    ]


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("#!/bin/sh\n", 0o644, "is not executable"),
        ("#!/usr/bin/no-such-shell\n", 0o755, "is a script for /usr/bin/no-such-shell, which is not there"),
    ],
)
def test_one_that_can_not_be_run_is_named_with_the_reason(tmp_path: Path, text: str, mode: int, words: str) -> None:
    path = script(tmp_path / "site.d" / "prolog", text, mode)

    assert of_program(path) == [f"Prolog={path} {words}"]
    assert of_program(f"{tmp_path}/site.d/*") == [f"Prolog={tmp_path}/site.d/* has {path}, which {words}"]


def test_a_missing_one_a_directory_and_a_link_to_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")

    assert of_program(f"{tmp_path}/prolog") == [f"Prolog={tmp_path}/prolog is not there"]
    assert of_program(str(tmp_path)) == [f"Prolog={tmp_path} is a directory"]
    assert of_program(f"{tmp_path}/link") == [f"Prolog={tmp_path}/link is not there"]


def test_what_users_run_must_be_theirs_to_run(readable: Path) -> None:
    closed = script(readable / "closed", mode=0o700)
    inside = script(readable / "private" / "task")
    (readable / "private").chmod(0o700)

    assert of_program(closed) == []
    assert of_program(closed, user=True) == [f"Prolog={closed} can't be run by users"]
    assert of_program(inside, user=True) == [
        f"Prolog={inside} can't be run by users: they may not enter {readable}/private"
    ]


def test_what_deepopsctls_own_program_calls_already_is_not_new(tmp_path: Path) -> None:
    wrapper = script(tmp_path / "prolog", "#!/bin/sh\nfor program in /s/old; do\n")

    def new(path: str) -> bool:
        (entry,) = slurm_needs.unmet({"programs": [{"key": "Prolog", "path": path, "called_by": wrapper}]})
        return bool(entry["new"])

    assert not new("/s/old")
    assert new("/s/new")
    assert new("/s/ol")


def test_below_a_mount_that_is_not_there_yet_nothing_is_known(tmp_path: Path) -> None:
    assert faults(programs=[{"key": "Prolog", "path": f"{tmp_path}/p"}], mounts=[str(tmp_path)]) == []
    assert faults(programs=[{"key": "Prolog", "path": f"{tmp_path}/p"}], mounts=["/"]) != []


def test_plugins_are_looked_for_where_slurm_has_them(tmp_path: Path) -> None:
    plugin = {"key": "TaskPlugin", "name": "task/site", "file": "task_site.so"}
    # no Slurm there yet
    assert faults(plugins=[plugin], plugin_directories=str(tmp_path)) == []
    (tmp_path / "auth_munge.so").touch()

    assert faults(plugins=[plugin], plugin_directories=f"/nowhere:{tmp_path}") == [
        f"TaskPlugin=task/site: there is no task_site.so in {tmp_path}"
    ]
    (tmp_path / "task_site.so").touch()
    assert faults(plugins=[plugin], plugin_directories=str(tmp_path)) == []


def test_directories_must_be_there_or_be_possible(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "spool")

    assert faults(directories=[{"key": "SlurmdLogFile", "path": str(tmp_path)}]) == []
    assert (
        faults(directories=[{"key": "SlurmdSpoolDir", "path": f"{tmp_path}/a/b", "made": True, "executes": True}]) == []
    )
    assert faults(directories=[{"key": "SlurmdLogFile", "path": f"{tmp_path}/a"}]) == [
        f"SlurmdLogFile: the directory {tmp_path}/a is not there"
    ]
    assert faults(directories=[{"key": "SlurmdSpoolDir", "path": below, "made": True}]) == [
        f"SlurmdSpoolDir: {tmp_path}/file is not a directory"
    ]


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no file system in memory here")
def test_job_directories_are_not_in_memory() -> None:
    (message,) = faults(
        directories=[{"key": "job_directories", "path": "/dev/shm/x/jobs", "made": True, "on_disk": True}]
    )

    assert message.startswith("job_directories: /dev/shm/x/jobs is in the node's memory (tmpfs)")
    assert faults(directories=[{"key": "job_directories", "path": "/usr/jobs", "made": True, "on_disk": True}]) == []


def test_devices_and_space_are_those_that_slurmd_would_find(tmp_path: Path) -> None:
    assert faults(devices=[f"{tmp_path}/renderD128"]) == [f"the GPU's device {tmp_path}/renderD128 is not there"]
    assert faults(temporary={"path": str(tmp_path), "mb": 10**9})[0].startswith("TmpDisk=1000000000 is more than the ")
    assert faults(temporary={"path": str(tmp_path), "mb": 1}) == []


def test_a_file_server_that_hangs_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_needs, "ANSWER_S", 0.2)
    monkeypatch.setattr(slurm_needs, "_fault", lambda *_: time.sleep(30))

    begin = time.monotonic()
    (message,) = of_program(str(tmp_path / "x"))

    assert "a file server hangs" in message
    assert time.monotonic() - begin < 10
