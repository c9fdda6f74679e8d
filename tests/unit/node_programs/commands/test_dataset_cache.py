"""`stage-in --cache`: a user's files on a node, found again by later jobs, room is made by the oldest."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from deepopsctl.node_programs.commands.staging import cache, stage_in
from tests.support.files import write_program

MIB = 1 << 20


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache of 4 MiB; job 7 runs, others have ended."""
    own = tmp_path / "datasets" / str(os.geteuid())
    own.mkdir(parents=True)
    settings = tmp_path / "dataset-cache.json"
    settings.write_text(json.dumps({"directory": str(own.parent), "bytes": 4 * MIB}))
    monkeypatch.setattr(cache, "SETTINGS", str(settings))
    tools = write_program(
        tmp_path / "tools/squeue",
        'case "$*" in *=7) echo RUNNING ;; *) echo Invalid job id specified >&2; exit 1 ;; esac',
    ).parent
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    return own


def job(tmp_path: Path, number: str) -> Mapping[str, str]:
    own = tmp_path / f"job-{number}"
    own.mkdir(exist_ok=True)
    return {"SLURM_JOB_ID": number, "SLURM_TMPDIR": str(own)}


def archive(tmp_path: Path, name: str, size: int = MIB) -> str:
    (tmp_path / name).write_bytes(os.urandom(size))
    subprocess.run(["tar", "-cf", tmp_path / f"{name}.tar", "-C", tmp_path, name], check=True)
    return str(tmp_path / f"{name}.tar")


def entries(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("*/content/*"))


def test_a_later_job_reads_nothing(place: Path, tmp_path: Path) -> None:
    source = archive(tmp_path, "a")
    assert stage_in.main(["--cache", source], job(tmp_path, "1")) == 0
    (entry,) = place.glob("*/content/a")
    facts = Path(source).stat()
    # the same name, size and time, and no archive any more: who reads it fails
    Path(source).write_bytes(b"x" * facts.st_size)
    os.utime(source, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    assert stage_in.main(["--this-node", "--find", "--cache", source], job(tmp_path, "2")) == 0
    assert stage_in.main(["--cache", source], job(tmp_path, "2")) == 0

    assert (tmp_path / "job-2" / "a").resolve() == entry
    assert (tmp_path / "job-2" / "a").read_bytes() == (tmp_path / "a").read_bytes()


def test_a_changed_file_is_another_one(place: Path, tmp_path: Path) -> None:
    source = archive(tmp_path, "a")
    assert stage_in.main(["--cache", source], job(tmp_path, "1")) == 0
    source = archive(tmp_path, "a", MIB // 2)

    assert stage_in.main(["--this-node", "--find", "--cache", source], job(tmp_path, "2")) == stage_in.NOT_THERE
    assert stage_in.main(["--cache", source], job(tmp_path, "2")) == 0
    assert (tmp_path / "job-2" / "a").stat().st_size == MIB // 2


def test_room_is_made_by_the_oldest_that_no_running_job_has(place: Path, tmp_path: Path) -> None:
    # 7 runs, and its file was used before all others
    for number, name in (("7", "a"), ("1", "b"), ("2", "c")):
        assert stage_in.main(["--cache", archive(tmp_path, name)], job(tmp_path, number)) == 0
        for path in place.glob("*/content"):
            os.utime(path.parent, (path.parent.stat().st_mtime - 60,) * 2)

    assert stage_in.main(["--cache", archive(tmp_path, "d")], job(tmp_path, "3")) == 0

    assert entries(place) == ["a", "c", "d"]


def test_what_is_larger_than_the_cache_is_staged_for_the_job_alone(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_in.main(["--cache", archive(tmp_path, "big", 5 * MIB)], job(tmp_path, "1")) == 0

    assert (tmp_path / "job-1" / "big").stat().st_size == 5 * MIB
    assert not (tmp_path / "job-1" / "big").is_symlink()
    assert entries(place) == []
    assert "in this job's directory only" in capsys.readouterr().out


def test_an_archive_that_is_cut_off_is_not_kept(place: Path, tmp_path: Path) -> None:
    source = Path(archive(tmp_path, "a"))
    source.write_bytes(source.read_bytes()[: MIB // 2])

    assert stage_in.main(["--cache", str(source)], job(tmp_path, "1")) == 1
    assert entries(place) == []


def test_directories_and_clusters_without_a_cache_are_refused(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage_in.main(["--cache", str(tmp_path)], job(tmp_path, "1")) == 1
    monkeypatch.setattr(cache, "SETTINGS", str(tmp_path / "nowhere"))
    assert stage_in.main(["--cache", archive(tmp_path, "a")], job(tmp_path, "1")) == 1

    errors = capsys.readouterr().err
    assert "`pack-dataset` makes one of it" in errors
    assert "leave out --cache" in errors
