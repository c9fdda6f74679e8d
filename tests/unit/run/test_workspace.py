from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.errors import InputError
from deepopsctl.run.workspace import RunDir, Workspace, private_file


def make_run(workspace: Workspace, name: str) -> RunDir:
    (workspace.runs / name).mkdir(parents=True)
    return RunDir(workspace.runs / name)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs")


def test_a_new_run_has_a_private_directory_named_by_time_and_command(workspace: Workspace) -> None:
    run = workspace.new_run("deploy")
    assert run.id[8] == run.id[15] == "-"
    assert run.id.endswith("-deploy")
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert (workspace.runs / "latest").resolve() == run.path.resolve()


def test_two_runs_in_one_second_have_two_directories(workspace: Workspace) -> None:
    runs = [workspace.new_run("deploy") for _ in range(3)]
    assert len({run.id for run in runs}) == 3
    assert [run.id for run in workspace.newest_first()] == [run.id for run in reversed(runs)]


def test_a_run_is_the_last_one_also_where_the_clock_was_set_back(workspace: Workspace) -> None:
    make_run(workspace, "29990101-000000-deploy")
    run = workspace.new_run("plan", max_runs=1)
    assert workspace.newest_first() == (run,)
    assert run.path.is_dir()


def test_a_copy_whose_links_were_followed_gets_its_link_back(workspace: Workspace) -> None:
    make_run(workspace, "latest").path.joinpath("run.json").write_text("{}")
    (workspace.runs / ".latest").mkdir()

    run = workspace.new_run("deploy")

    assert (workspace.runs / "latest").readlink() == Path(run.id)


def test_old_runs_are_pruned_and_strangers_stay(workspace: Workspace) -> None:
    for number in range(5):
        make_run(workspace, f"2026010{number + 1}-000000-deploy")
    (workspace.runs / "notes").mkdir()
    newest = workspace.new_run("deploy", max_runs=3)
    assert [run.id for run in workspace.newest_first()] == [
        newest.id, "20260105-000000-deploy", "20260104-000000-deploy",
    ]  # fmt: skip
    assert (workspace.runs / "notes").is_dir()


def test_private_files_of_killed_runs_are_removed(workspace: Workspace) -> None:
    killed = make_run(workspace, "20260101-000000-deploy")
    killed.private.mkdir()
    workspace.new_run("deploy")
    assert not killed.private.exists()
    assert killed.path.exists()


def test_a_run_is_found_by_the_beginning_of_its_id(workspace: Workspace) -> None:
    old = make_run(workspace, "20260101-000000-deploy")
    first, second = (make_run(workspace, f"20260102-000000-deploy{end}") for end in ("", "-2"))
    assert workspace.find() == second
    assert workspace.find("latest") == second
    assert workspace.find("20260101") == old
    # a whole id is not a prefix of the next one
    assert workspace.find(first.id) == first


@pytest.mark.parametrize(("prefix", "message"), [("2026", "matches 2 runs"), ("2025", "there is no run 2025")])
def test_an_unclear_id_is_refused(workspace: Workspace, prefix: str, message: str) -> None:
    make_run(workspace, "20260101-000000-deploy")
    make_run(workspace, "20260102-000000-deploy")
    with pytest.raises(InputError, match=message):
        workspace.find(prefix)


def test_without_runs_there_is_nothing_to_find(workspace: Workspace) -> None:
    assert workspace.newest_first() == ()
    with pytest.raises(InputError, match="there are no runs yet"):
        workspace.find()


def test_documents_are_written_for_the_owner_only_and_read_back(workspace: Workspace) -> None:
    run = workspace.new_run("deploy")
    run.write(run.summary, {"ok": True})
    assert run.summary.stat().st_mode & 0o777 == 0o600
    assert run.read(run.summary) == {"ok": True}


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_a_broken_document_reads_as_empty(workspace: Workspace, text: str) -> None:
    run = workspace.new_run("deploy")
    run.summary.write_text(text)
    assert run.read(run.summary) == {}
    assert run.read(run.path / "absent") == {}


def test_a_private_file_is_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "output").symlink_to("victim")

    with pytest.raises(OSError, match="symbolic links"):
        private_file(tmp_path / "output")
    assert (tmp_path / "victim").read_text() == "precious"
