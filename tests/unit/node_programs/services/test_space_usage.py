"""The nightly count of what members of groups have, and how `diskusage_report --per_user` reads it."""

from __future__ import annotations

import grp
import json
import os
import pwd
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deepopsctl.node_programs.commands.disk_usage import members, sources
from deepopsctl.node_programs.commands.disk_usage.rows import FileSystem, Person
from deepopsctl.node_programs.commands.disk_usage.table import description
from deepopsctl.node_programs.services.scratch_purge.walk import Walk
from deepopsctl.node_programs.services.space_usage import cli

ROOTS_GROUP = grp.getgrgid(os.getgid()).gr_name
ME = os.geteuid()
as_root = pytest.mark.skipif(ME != 0, reason="only root gives files away")


@pytest.fixture
def space(tmp_path: Path) -> Path:
    (tmp_path / "space" / ROOTS_GROUP / "deep").mkdir(parents=True)
    return tmp_path / "space"


def counted(space: Path) -> int:
    config = space.parent / "config.json"
    config.write_text(json.dumps({"spaces": [{"path": str(space), "groups": {ROOTS_GROUP: os.getgid()}}]}))
    return cli.main(["--config", str(config)])


def users(space: Path) -> dict[int, int]:
    """Number of files by user, as the result has it."""
    result = json.loads((space / ".stats" / f"{ROOTS_GROUP}.json").read_text())
    return {entry["uid"]: entry["files"] for entry in result["users"]}


def rows(space: Path) -> list[tuple[str, str, int | None]]:
    person = Person("me", ME, [os.getgid()])
    actual = members.read(FileSystem("project", str(space), "nfs"), person, owner=ME)
    return [(row.path, row.who, row.usage.files.used) for row in actual]


@as_root
def test_files_count_for_their_owners_and_a_file_with_two_names_once(space: Path) -> None:
    for name, uid in (("a", 60010), ("b", 60010), ("deep/c", 60011)):
        (space / ROOTS_GROUP / name).write_text("x")
        os.chown(space / ROOTS_GROUP / name, uid, uid)
    os.link(space / ROOTS_GROUP / "a", space / ROOTS_GROUP / "deep" / "a2")
    # a link leads the count nowhere
    (space.parent / "big").mkdir()
    (space.parent / "big" / "file").write_text("x")
    (space / ROOTS_GROUP / "link").symlink_to(space.parent / "big")

    assert counted(space) == cli.OK
    assert users(space) == {60010: 2, 60011: 1, ME: 1}


def test_a_link_in_place_of_a_groups_directory_is_refused(space: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (space / ROOTS_GROUP).rename(space / "elsewhere")
    (space / ROOTS_GROUP).symlink_to("elsewhere")

    assert counted(space) == cli.PROBLEMS
    assert "a link, or not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("forge", "message"), [("link", "Not a directory"), pytest.param("owner", "is not root's", marks=as_root)]
)
def test_results_are_written_neither_through_a_link_nor_where_a_user_could_change_them(
    forge: str, message: str, space: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "victim").mkdir()
    if forge == "link":
        (space / ".stats").symlink_to(tmp_path / "victim")
    else:
        (space / ".stats").mkdir()
        os.chown(space / ".stats", 60010, 60010)

    assert counted(space) == cli.PROBLEMS
    assert list((tmp_path / "victim").iterdir()) == []
    error = capsys.readouterr().err
    assert f"{space}/{ROOTS_GROUP}: " in error
    assert message in error


def test_members_of_a_group_see_its_result(space: Path) -> None:
    (space / ROOTS_GROUP / "file").write_text("x")
    counted(space)

    ((path, who, files),) = rows(space)

    assert (path, files) == (f"{space}/{ROOTS_GROUP}", 1)
    assert who == members._user(ME)
    status = (space / ".stats" / f"{ROOTS_GROUP}.json").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o640, os.getgid())
    assert stat.S_IMODE((space / ".stats").stat().st_mode) == 0o755


@pytest.mark.parametrize("forge", ["link", "mode", pytest.param("owner", marks=as_root)])
def test_a_result_that_may_be_somebody_elses_is_not_shown(forge: str, space: Path, tmp_path: Path) -> None:
    (space / ROOTS_GROUP / "file").write_text("x")
    counted(space)
    result = space / ".stats" / f"{ROOTS_GROUP}.json"
    if forge == "link":
        result.rename(tmp_path / "forged")
        result.symlink_to(tmp_path / "forged")
    elif forge == "mode":
        result.chmod(0o666)
    else:
        os.chown(result, 60010, -1)

    assert rows(space) == []


def test_members_with_little_are_counted_below_the_table() -> None:
    where = FileSystem("project", "/project", "nfs")
    counts = [
        {"uid": 4242421, "files": 3, "bytes": 5},
        {"uid": 4242422, "files": 120_000, "bytes": 2 << 30},
    ]
    actual = [members._row(where, "/project/def-curie", count, "1970-01-01 00:00") for count in counts]

    shown = members.render(actual, everybody=False).splitlines()

    assert shown[1].startswith("/project/def-curie, counted 19")
    assert [" ".join(line.split()) for line in shown[2:4]] == ["User # of files Space", "4242422 120k 2 GiB"]
    assert shown[4] == "1 with less than 100k files and 1 GiB: --all_users shows them"
    assert "4242421  " in members.render(actual, everybody=True)


def test_a_file_that_is_removed_meanwhile_ends_nothing(space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (space / ROOTS_GROUP / "a").touch()
    original = Walk.__iter__
    monkeypatch.setattr(Walk, "__iter__", lambda self: (replace(each, names=0) for each in original(self)))

    assert counted(space) == 0
    assert users(space) == {ME: 1}


USER = pwd.getpwuid(ME).pw_name


def count_users(space: Path, *names: str) -> int:
    config = space.parent / "config.json"
    config.write_text(json.dumps({"spaces": [{"path": str(space), "users": list(names)}]}))
    return cli.main(["--config", str(config)])


def test_without_quotas_users_see_what_their_own_directory_has(tmp_path: Path) -> None:
    space = tmp_path / "scratch"
    (space / USER).mkdir(parents=True)
    (space / USER / "file").write_text("x" * 1000)

    assert count_users(space, USER) == cli.OK

    where, person = FileSystem("scratch", str(space), "nfs"), Person(USER, ME, [os.getgid()])
    (row,) = members.totals(where, person, owner=ME)
    assert (row.path, row.who, row.kind, row.usage.files.used) == (f"{space}/{USER}", USER, "user", 1)
    assert description(row).startswith(f"{space}/{USER} ({USER}, counted 20")
    # another user has none, whatever is there for others
    assert members.totals(where, Person("ghost", 4242421, []), owner=ME) == []
    # the whole file system comes after it
    listed = sources.ask(FileSystem("scratch", str(space), "local"), person)
    assert [each.kind for each in listed][-1] == "whole"


def test_a_groups_total_is_shown_to_its_members_where_there_are_no_quotas(space: Path) -> None:
    (space / ROOTS_GROUP / "file").write_text("x")
    counted(space)
    where = FileSystem("project", str(space), "nfs")

    (row,) = members.totals(where, Person("me", 4242421, [os.getgid()]), owner=ME)

    assert (row.kind, row.who, row.usage.files.used) == ("project", ROOTS_GROUP, 1)


@as_root
def test_root_sees_all_directories_of_users_in_one_table(tmp_path: Path) -> None:
    space = tmp_path / "scratch"
    for name, uid in (("games", 5), ("nobody", 65534)):
        (space / name).mkdir(parents=True)
        (space / name / "file").write_text("x" * uid)
        os.chown(space / name / "file", uid, uid)
    count_users(space, "games", "nobody")

    seen = members.read(FileSystem("scratch", str(space), "nfs"), Person("root", 0, [0]))

    assert [(row.path, row.who) for row in seen] == [(str(space), "nobody"), (str(space), "games")]
    # one table, also where the counts took an hour
    assert len({row.source for row in seen}) == 1
    # the primary group of `nobody` is not its own
    assert (space / ".stats" / "nobody.json").stat().st_gid == 0


def test_a_users_result_is_read_by_no_group_that_others_are_in(monkeypatch: pytest.MonkeyPatch) -> None:
    alice = pwd.struct_passwd(("alice", "x", 60010, 60010, "", "/", "/bin/sh"))
    groups = {60010: grp.struct_group(("alice", "x", 60010, [])), 100: grp.struct_group(("users", "x", 100, []))}
    monkeypatch.setattr(pwd, "getpwnam", {"alice": alice}.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)

    assert (cli.own_group("alice"), cli.own_group("ghost")) == (60010, 0)
    groups[60010] = grp.struct_group(("alice", "x", 60010, ["bob"]))
    assert cli.own_group("alice") == 0
    groups[60010] = grp.struct_group(("users", "x", 60010, []))
    assert cli.own_group("alice") == 0
