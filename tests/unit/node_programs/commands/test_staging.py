"""stage-in and stage-out as a job calls them, with real archives; a stand-in for srun shows how nodes are called."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from deepopsctl.node_programs.commands.staging import broadcast, pack_dataset, stage_in, stage_out
from tests.support.files import write_program

DAY = 86400


@pytest.fixture
def job(tmp_path: Path) -> Mapping[str, str]:
    for name in ("own", "scratch"):
        (tmp_path / name).mkdir()
    return {"SLURM_JOB_ID": "7", "SLURM_TMPDIR": str(tmp_path / "own"), "SCRATCH": str(tmp_path / "scratch")}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with an old file, a program and a link."""
    path = tmp_path / "data"
    path.mkdir()
    (path / "old").write_text("x")
    os.utime(path / "old", (time.time() - 90 * DAY,) * 2)
    (path / "run").write_text("#!/bin/sh\n")
    (path / "run").chmod(0o755)
    (path / "link").symlink_to("old")
    return path


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst", "ZIP"])
def test_archives_are_unpacked_with_the_time_of_now(suffix: str, data: Path, job: Mapping[str, str]) -> None:
    archive = data.parent / f"data.{suffix}"
    argv = ["zip", "-qry"] if suffix == "ZIP" else ["tar", "-caf"]
    subprocess.run([*argv, archive, "data"], cwd=data.parent, check=True)

    assert stage_in.main([str(archive)], job) == 0

    unpacked = Path(job["SLURM_TMPDIR"], "data")
    assert (unpacked / "old").stat().st_mtime > time.time() - DAY
    assert os.access(unpacked / "run", os.X_OK)
    assert (unpacked / "link").is_symlink()


def test_anything_else_is_copied_and_archives_too_where_that_is_asked_for(data: Path, job: Mapping[str, str]) -> None:
    archive = data.parent / "a.tar"
    archive.write_bytes(b"no archive")

    assert stage_in.main(["--copy", str(archive), f"{data}/"], job) == 0

    assert (Path(job["SLURM_TMPDIR"]) / "a.tar").read_bytes() == b"no archive"
    assert (Path(job["SLURM_TMPDIR"]) / "data" / "link").is_symlink()


def test_the_archive_of_that_name_is_unpacked_and_none_that_is_like_it(tmp_path: Path, job: Mapping[str, str]) -> None:
    for name, text in (("data[1].zip", "wanted"), ("data1.zip", "other")):
        (tmp_path / "who").write_text(text)
        subprocess.run(["zip", "-q", tmp_path / name, "who"], cwd=tmp_path, check=True)

    assert stage_in.main([str(tmp_path / "data[1].zip")], job) == 0
    assert Path(job["SLURM_TMPDIR"], "who").read_text() == "wanted"


def test_a_link_that_is_named_is_what_it_leads_to(data: Path, job: Mapping[str, str]) -> None:
    (data.parent / "newest").symlink_to("data")
    own = Path(job["SLURM_TMPDIR"])

    assert stage_in.main([str(data.parent / "newest")], job) == 0
    assert (own / "newest" / "old").read_text() == "x"
    (own / "last").symlink_to("newest/old")
    assert stage_out.main(["last"], job) == 0

    assert (Path(job["SCRATCH"], "7", "last")).read_text() == "x"
    assert not Path(job["SCRATCH"], "7", "last").is_symlink()


def test_an_archive_is_refused_where_it_would_have_a_link_alone(
    job: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    results(job, "1")
    Path(job["SLURM_TMPDIR"], "last").symlink_to("results/loss")

    assert stage_out.main(["--pack", "all.tar", "last"], job) == 1
    assert "a link, and what it leads to is gone after the job" in capsys.readouterr().err
    assert stage_out.main(["--pack", "all.tar", "last", "results"], job) == 0


def test_refuses_files_that_would_replace_one_another(
    job: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    own = Path(job["SLURM_TMPDIR"])
    for name in ("a", "b"):
        (own / name).mkdir()
        (own / name / "loss").write_text(name)
        subprocess.run(["tar", "-cf", own / name / "x.tar", "-C", own / name, "loss"], check=True)

    assert stage_out.main(["a/loss", "b/loss"], job) == 1
    assert stage_out.main(["--pack", "all.tar", "a/loss", "b/loss"], job) == 1
    assert stage_in.main([str(own / "a/loss"), str(own / "b/loss")], job) == 1
    assert capsys.readouterr().err.count("several are called loss") == 3
    assert not list(Path(job["SCRATCH"]).iterdir())
    # archives are unpacked
    assert stage_in.main([str(own / "a/x.tar"), str(own / "b/x.tar")], job) == 0


def test_an_archive_that_is_cut_off_fails(
    data: Path, job: Mapping[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    archive = data.parent / "data.tar.gz"
    subprocess.run(["tar", "-caf", archive, "data"], cwd=data.parent, check=True)
    archive.write_bytes(archive.read_bytes()[:-20])

    assert stage_in.main([str(archive)], job) == 1
    assert f"{archive}: not complete (exit status 2)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("program", "path", "missing", "message"),
    [
        (stage_in, "/etc/hostname", "SLURM_JOB_ID", "this is not a job"),
        (stage_in, "/etc/hostname", "SLURM_TMPDIR", "SLURM_TMPDIR is not set"),
        (stage_in, "/nowhere/x.tar", "SCRATCH", "/nowhere/x.tar: No such file or directory"),
        (stage_out, "results", "SCRATCH", "SCRATCH is not set"),
    ],
)
def test_what_is_missing_is_reported(
    program: ModuleType,
    path: str,
    missing: str,
    message: str,
    job: Mapping[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    results(job, "1")

    assert program.main([path], {**job, missing: ""}) == 1
    assert message in capsys.readouterr().err


def results(job: Mapping[str, str], text: str) -> Path:
    path = Path(job["SLURM_TMPDIR"], "results")
    path.mkdir(exist_ok=True)
    (path / "loss").write_text(text)
    return Path(job["SCRATCH"], "7")


def test_results_go_to_scratch_and_a_second_call_replaces_them(job: Mapping[str, str]) -> None:
    out = results(job, "1")
    assert stage_out.main(["results"], job) == 0
    results(job, "2")
    (out / "results" / "gone").touch()

    assert stage_out.main(["results"], job) == 0

    assert [path.name for path in out.iterdir()] == ["results"]
    assert {path.name: path.read_text() for path in (out / "results").iterdir()} == {"loss": "2"}


def test_results_that_are_not_complete_leave_the_former_ones(job: Mapping[str, str], tmp_path: Path) -> None:
    out = results(job, "1")
    stage_out.main(["results"], job)
    tools = write_program(tmp_path / "tools/cp", 'mkdir -p "$6"\nexit 1').parent

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        assert stage_out.main(["results"], job) == 1

    assert (out / "results" / "loss").read_text() == "1"
    assert stage_out.main(["results"], job) == 0
    assert [path.name for path in out.iterdir()] == ["results"]


def test_results_of_a_call_that_was_cut_off_are_not_lost(
    job: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = results(job, "1")
    (out / ".stage-out-old-7-results").mkdir(parents=True)
    (out / ".stage-out-old-7-results" / "loss").write_text("0")

    monkeypatch.setenv("PATH", "")
    assert stage_out.main(["results"], job) == 1

    assert (out / "results" / "loss").read_text() == "0"


def test_jobs_that_write_to_one_directory_leave_each_others_unfinished_results_alone(
    job: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results(job, "1")
    shared = tmp_path / "shared"
    for number in ("5", "6"):
        (shared / f".stage-out-new-{number}-results").mkdir(parents=True)
    # 5 runs, 6 has ended
    squeue = write_program(
        tmp_path / "tools/squeue",
        'case "$*" in *=5) echo RUNNING ;; *) echo Invalid job id specified >&2; exit 1 ;; esac',
    )
    monkeypatch.setenv("PATH", str(squeue.parent), prepend=":")

    assert stage_out.main(["--to", str(shared), "results"], job) == 0

    assert {path.name for path in shared.iterdir()} == {".stage-out-new-5-results", "results"}
    assert {path.name for path in (shared / "results").iterdir()} == {"loss"}


@pytest.mark.parametrize("before", ["a link", "a file"])
def test_results_take_the_place_of_a_file_and_of_a_link_which_is_not_followed(
    job: Mapping[str, str], tmp_path: Path, before: str
) -> None:
    out = results(job, "1")
    out.mkdir()
    (tmp_path / "elsewhere").mkdir()
    if before == "a link":
        (out / "results").symlink_to(tmp_path / "elsewhere")
    else:
        (out / "results").write_text("of the run before")

    assert stage_out.main(["results"], job) == 0
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert [path.name for path in out.iterdir()] == ["results"]
    assert (out / "results" / "loss").read_text() == "1"


def test_directories_that_are_read_only_are_replaced(job: Mapping[str, str]) -> None:
    """Root may write there anyway: only as another user does this find anything."""
    out = results(job, "1")
    cache = Path(job["SLURM_TMPDIR"], "results", "cache", "below")
    cache.mkdir(parents=True)
    (cache / "file").touch()
    for path in (cache, cache.parent):
        path.chmod(0o555)

    assert [stage_out.main(["results"], job) for _ in range(3)] == [0, 0, 0]
    assert [path.name for path in out.iterdir()] == ["results"]
    for path in (*out.glob("results/cache"), *out.glob("results/cache/below"), cache.parent, cache):
        path.chmod(0o755)


def test_results_can_be_one_archive_in_a_directory_with_a_colon(
    job: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results(job, "1")
    monkeypatch.chdir(tmp_path)

    assert stage_out.main(["--to", "run-12:30", "--pack", "all.tar.gz", "results"], job) == 0

    (archive,) = (tmp_path / "run-12:30").iterdir()
    listed = subprocess.run(["tar", "--force-local", "-tf", archive], capture_output=True, text=True, check=True)
    assert (archive.name, listed.stdout.split()) == ("all.tar.gz", ["./results/", "./results/loss"])


@pytest.mark.parametrize("step", ["", "4294967290"])
def test_a_job_with_several_nodes_calls_each_once(
    step: str, job: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = write_program(tmp_path / "tools/srun", f'echo "$@" >{tmp_path}/called\nexit 3').parent
    write_program(tools / "sbcast", "exit 7")
    several = {**job, "SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_ID": step}

    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/stage-in"])
    assert stage_in.main(["--each", "a b.tar"], {**several, "PATH": os.environ["PATH"]}) == 3

    called = (tmp_path / "called").read_text()
    assert called.startswith("--nodes=4 --ntasks=4 --ntasks-per-node=1 ")
    assert called.endswith("/usr/local/bin/stage-in --this-node --each a b.tar\n")


def test_each_node_of_several_has_results_of_its_own(job: Mapping[str, str]) -> None:
    out = results(job, "1")

    assert stage_out.main(["--this-node", "results"], {**job, "SLURM_JOB_NUM_NODES": "2", "SLURM_STEP_ID": "1"}) == 0

    node = os.uname().nodename.partition(".")[0]
    assert (out / node / "results" / "loss").read_text() == "1"


def test_what_the_first_node_has_sent_is_not_read_again(
    data: Path, job: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for sbcast copies to this one node; then the sources are gone."""
    tools = write_program(tmp_path / "tools/sbcast", 'cp "$2" "$3"').parent
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    subprocess.run(["tar", "-cf", tmp_path / "set.tar", "-C", data, "old"], check=True)
    sources = [str(tmp_path / "set.tar"), str(data / "run"), str(data)]
    prefix = broadcast.send(sources, job)
    subprocess.run(["rm", "-r", *sources], check=True)

    assert stage_in.main(["--this-node", f"--sent={prefix}", *sources], job) == 0

    own = Path(job["SLURM_TMPDIR"])
    assert {path.name for path in own.iterdir()} == {"old", "run", "data"}
    assert os.access(own / "run", os.X_OK)
    assert (own / "data" / "link").is_symlink()
    assert (own / "data" / "old").stat().st_mtime > time.time() - DAY


def test_a_file_that_does_not_reach_every_node_fails(
    data: Path,
    job: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tools = write_program(tmp_path / "tools/sbcast", "exit 1").parent
    write_program(tools / "srun", "exit 0")
    monkeypatch.setenv("PATH", str(tools), prepend=":")

    assert stage_in.main([str(data / "old")], {**job, "SLURM_JOB_NUM_NODES": "2"}) == 1
    assert "not sent to all nodes" in capfd.readouterr().err


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_many_files_become_one_image_and_are_the_same_again(
    compression: str,
    data: Path,
    job: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(data.parent)

    assert pack_dataset.main(["data", "--compression", compression], {}) == 0
    assert "data.sqsh: 3 files" in capsys.readouterr().out
    assert stage_in.main(["data.sqsh"], job) == 0

    own = Path(job["SLURM_TMPDIR"], "data")
    assert (own / "old").read_text() == "x"
    assert (own / "old").stat().st_mtime > time.time() - DAY
    assert (own / "link").is_symlink()
    assert not list(data.parent.glob(".data.sqsh*"))


def test_an_image_is_not_replaced_unasked_and_not_made_where_it_is_packed(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(data.parent)
    (data.parent / "data.sqsh").write_text("mine")

    assert pack_dataset.main(["data"], {}) == 1
    assert pack_dataset.main(["data", "data/own.sqsh"], {}) == 1
    assert pack_dataset.main(["data", "data.tar"], {}) == 1

    errors = capsys.readouterr().err
    assert "--force replaces it" in errors
    assert "in the directory that is packed" in errors
    assert (data.parent / "data.sqsh").read_text() == "mine"
    assert pack_dataset.main(["--force", "data"], {}) == 0
