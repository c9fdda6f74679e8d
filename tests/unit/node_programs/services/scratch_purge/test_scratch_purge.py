"""The purge of a scratch directory, on real trees, hostile ones above all. Time is moved, without waiting."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared.settings import SettingsError
from deepopsctl.node_programs.services.scratch_purge import cli, deleting, notices, tree, walk
from deepopsctl.node_programs.services.scratch_purge.ageing import Ages
from deepopsctl.node_programs.services.scratch_purge.excluding import Excluded
from deepopsctl.node_programs.services.scratch_purge.records import Record, quoted
from deepopsctl.node_programs.services.scratch_purge.run import BusyError, apply, exclusive_lock, list_due
from deepopsctl.node_programs.services.scratch_purge.settings import Settings, from_object
from deepopsctl.node_programs.services.scratch_purge.tree import OpenPath, TreeError
from deepopsctl.node_programs.services.scratch_purge.warned import Warned
from tests.support.files import write_program

DAY = 86400
AGE = 60 * DAY
# files made now are older than their age then
LATER = int(time.time()) + AGE + DAY
AGES = Ages(ignore_reads=False)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away and mounts")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "scratch"
    directory.mkdir(mode=0o1777)
    return directory


def settings(root: Path, **more: object) -> Settings:
    alongside = root.parent
    values = {"root": str(root), "state": str(alongside / "state"), "logs": str(alongside / "logs")}
    return from_object({"name": "scratch", "age": AGE, **values, **more})


def make(path: Path, content: str = "old") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def listed(values: Settings, now: int = LATER) -> list[bytes]:
    result: list[Record] = []
    list_due(values, now, result.append)
    return [record.path for record in result]


# the program, two hours later
PROGRAM = (
    "import sys, time; real = time.time; time.time = lambda: real() + 7200; "
    "from deepopsctl.node_programs.services.scratch_purge.cli import main; sys.exit(main(sys.argv[1:]))"
)


def configured(root: Path, **more: object) -> str:
    """The command that purges what was not used for an hour, with its configuration in a file."""
    config = root.parent / "purge.json"
    config.write_text(json.dumps(settings(root, mode="delete", age=3600).__dict__ | more))
    return f"{sys.executable} -c '{PROGRAM}' {config} --apply"


def with_mounts(script: str, options: str = "-c") -> subprocess.CompletedProcess[str]:
    """Run it in a mount namespace of its own."""
    return subprocess.run(["unshare", "--mount", "bash", options, script], capture_output=True, text=True)


def left(root: Path) -> set[str]:
    return {os.fsdecode(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


# --- what is due


def test_the_newest_of_use_and_change_counts(root: Path) -> None:
    read = make(root / "read")
    changed = make(root / "changed")
    renamed = make(root / "renamed")
    os.utime(read, (LATER - DAY, 0))
    os.utime(changed, (0, LATER - DAY))
    # both times say 1970, but the inode was changed just now, in real time
    os.utime(renamed, (0, 0))

    assert listed(settings(root)) == [b"renamed"]
    assert listed(settings(root), now=int(time.time()) + DAY) == []


@pytest.mark.parametrize("times", [(LATER + 1000 * DAY, 0), (0, LATER + 1000 * DAY), (LATER + 2 * 3600, 0)])
def test_a_time_in_the_future_keeps_a_file(root: Path, times: tuple[int, int]) -> None:
    """It was used on a server whose clock is ahead, or while we look: who can tell."""
    os.utime(make(root / "alice/ahead"), times)

    summary = apply(settings(root, mode="delete"), LATER)

    assert left(root) == {"alice/ahead"}
    assert summary.looked_at.get("dated in the future", 0) == (max(times) > LATER + DAY)


def test_deletes_exactly_what_it_lists_and_nothing_where_it_only_lists(root: Path) -> None:
    for number in range(300):
        path = make(root / f"user{number % 7}/{number % 13}/file{number}")
        if number % 3 == 0:
            os.utime(path, (LATER - DAY, LATER - 90 * DAY))
    values = settings(root, mode="delete", exclude=["user3", "*7"])
    before, due = left(root), {os.fsdecode(path) for path in listed(values)}
    only_listed = apply(settings(root), LATER)
    assert (only_listed.due, only_listed.deleted, left(root)) == (200, 0, before)

    summary = apply(values, LATER)

    assert len(due) > 50
    assert before - left(root) == due
    assert summary.deleted == len(due)
    assert summary.ok
    (log,) = (root.parent / "logs").iterdir()
    assert {line.partition(": ")[2] for line in log.read_text().splitlines()} == due
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("*.keep", {"a/x.keep"}),
        ("deep", {"a/deep/z"}),
        ("a/deep", {"a/deep/z"}),
        ("/a/deep/", {"a/deep/z"}),
        ("*/deep/z", {"a/deep/z"}),
        # a star stays in its directory, and a path begins at the root
        ("*/z", set()),
        ("deep/z", set()),
    ],
)
def test_what_is_excluded_stays(root: Path, pattern: str, kept: set[str]) -> None:
    make(root / "a/x.keep")
    make(root / "a/deep/z")
    make(root / "b")

    apply(settings(root, mode="delete", exclude=[pattern]), LATER)

    assert left(root) == kept


def test_empty_directories_go_only_where_it_is_reported_and_never_on_the_first_level(root: Path) -> None:
    for name in ("alice/old/older", "bob"):
        (root / name).mkdir(parents=True)
    keeping, removing = settings(root, mode="delete"), settings(root, mode="delete", empty_directories=True)

    assert listed(keeping) == []
    assert listed(removing) == [b"alice/old/older"]
    apply(removing, LATER)

    assert [path.name for path in sorted(root.rglob("*"))] == ["alice", "old", "bob"]
    # it was emptied just now, and is as old as that
    assert listed(removing, now=int(time.time()) + DAY) == []


# --- names


@pytest.mark.parametrize(
    "name", [b"back\\slash, new\nline", b"\xff\xfe broken", b"quote'double\"", b"-rf", "grün".encode(), b"*"]
)
def test_any_name_is_listed_deleted_and_shown_as_a_shell_reads_it(root: Path, name: bytes) -> None:
    make(root / "alice" / os.fsdecode(name) / os.fsdecode(name))
    values = settings(root, mode="delete")

    result = listed(values)
    summary = apply(values, LATER)

    assert result == [b"alice/%s/%s" % (name, name)]
    assert (summary.deleted, summary.problems) == (1, [])
    (line,) = next((root.parent / "logs").iterdir()).read_text().splitlines()
    assert line.isprintable()
    shown = subprocess.run(["bash", "-c", f"printf %s {quoted(name)}"], capture_output=True, check=True)
    assert shown.stdout == name


def nest(root: Path, levels: int, name: str, files: int) -> None:
    """So many files below so many directories of that name: deeper than a path may be long."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        lower = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = lower
    for number in range(files):
        os.close(os.open(f"file{number:07}", os.O_CREAT, dir_fd=here))
    os.close(here)


def test_deeper_than_there_can_be_open_directories_is_reported_and_left(root: Path) -> None:
    make(root / "/".join("d" * 30) / "file")
    with OpenPath(str(root), deepest=20) as way:
        looking = walk.Walk(way, Excluded(()), AGES, LATER)

        assert list(looking) == []
        assert looking.seen.problems[0].endswith("not entered: more than 20 levels deep")


# --- links, mounts, devices


def test_links_go_and_what_they_point_at_stays(root: Path, tmp_path: Path) -> None:
    victim = make(tmp_path / "outside/precious")
    (root / "alice").mkdir()
    (root / "alice/file").symlink_to(victim)
    (root / "alice/directory").symlink_to(victim.parent)
    (root / "alice/loop").symlink_to(root)
    (root / "alice/nowhere").symlink_to("/nonexistent")

    summary = apply(settings(root, mode="delete"), LATER)

    assert summary.deleted == 4
    assert victim.read_text() == "old"


@pytest.mark.parametrize("link", ["scratch", "above"])
def test_refuses_a_root_that_is_reached_by_a_link(tmp_path: Path, link: str) -> None:
    make(tmp_path / "real/scratch/precious")
    (tmp_path / "above").symlink_to(tmp_path / "real")
    (tmp_path / "scratch").symlink_to(tmp_path / "real/scratch")
    through = {"scratch": tmp_path / "scratch", "above": tmp_path / "above/scratch"}[link]

    with pytest.raises(TreeError, match="a link, or not a directory"):
        listed(settings(through))


def test_a_file_goes_with_all_its_names_and_frees_nothing_while_one_is_elsewhere(root: Path, tmp_path: Path) -> None:
    home = make(tmp_path / "home/result", "x" * 5000)
    (root / "alice").mkdir()
    for name in ("first", "second", "third"):
        os.link(home, root / "alice" / name)

    summary = apply(settings(root, mode="delete"), LATER)

    assert (summary.due, summary.deleted, summary.deleted_bytes, summary.kept) == (3, 3, 0, {})
    assert left(root) == set()
    assert home.read_text() == "x" * 5000


@as_root
def test_a_users_directory_with_the_name_of_ours_hides_nothing(root: Path) -> None:
    make(root / ".to_delete/hidden")
    os.chown(root / ".to_delete", 61001, 61001)

    assert listed(settings(root, mode="delete")) == [b".to_delete/hidden"]


def test_sockets_pipes_and_devices_are_counted_and_left(root: Path) -> None:
    (root / "alice").mkdir()
    os.mkfifo(root / "alice/pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "alice/socket"))
        if os.geteuid() == 0:
            os.mknod(root / "alice/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))

        summary = apply(settings(root, mode="delete", empty_directories=True), LATER)

    assert summary.looked_at["special"] >= 2
    assert summary.deleted == 0
    assert (root / "alice/pipe").is_fifo()


@as_root
@pytest.mark.parametrize(
    ("mount", "why"), [("-t tmpfs none", "another file system"), ("--bind {root}/../home", "a mount point")]
)
def test_does_not_enter_what_is_mounted_inside(root: Path, mount: str, why: str) -> None:
    """A bind mount of the same file system has the same device number: its mount tells."""
    make(root.parent / "home/precious")
    (root / "alice/there").mkdir(parents=True)
    make(root / "alice/old")
    there = f"{root}/alice/there"
    command = f"mount {mount.format(root=root)} {there}; touch {there}/precious; {configured(root)} --json; ls {there}"

    first, inside = with_mounts(command, "-ec").stdout.splitlines()

    result = json.loads(first)
    assert result["deleted"] == 1
    assert [note.startswith(f"alice/there: not entered: {why}") for note in result["notes"]] == [True]
    assert inside == "precious"


@as_root
@pytest.mark.parametrize(
    "place",
    [
        "mkdir -p {root}/home && mount --bind {root}/home /home",
        "mount --bind {root} /home",
        "mount --bind {root}/alice /var/spool",
        "mount -t tmpfs none {root} && mkdir {root}/h && mount --bind {root}/h /home",
        "sed '$a a:x:61001:61001::{root}/alice:' /etc/passwd >{root}/../new && mount --bind {root}/../new /etc/passwd",
    ],
)
def test_refuses_a_tree_that_holds_homes_or_the_system_under_another_name(root: Path, place: str) -> None:
    """The server of /home has it elsewhere: as a bind mount, as another mount of the same disk, in accounts."""
    make(root / "alice/old")

    done = with_mounts(f"{place.format(root=root)} && {configured(root)}", "-ec")

    assert done.returncode == cli.PROBLEMS, done.stderr
    assert "is not scratch and is never purged" in done.stderr


@as_root
def test_refuses_what_does_not_note_reads_unless_that_is_meant(root: Path) -> None:
    # it was read, by its time, a moment ago, and changed long before
    fill = f"mkdir {root}/alice && touch {root}/alice/old && touch -a -d '+2 hours' {root}/alice/old"

    def run(**more: object) -> subprocess.CompletedProcess[str]:
        return with_mounts(f"mount -t tmpfs -o noatime none {root} && {fill} && {configured(root, **more)} --json")

    refused, warned, purged = run(), run(ignore_reads=True, warn=3600), run(ignore_reads=True)

    assert refused.returncode == cli.PROBLEMS
    assert "(tmpfs, noatime) does not note when a file is read" in refused.stderr
    assert "ignore_reads: true" in refused.stderr
    assert json.loads(warned.stdout)["warned"] == 1
    assert json.loads(purged.stdout)["deleted"] == 1


def test_users_are_reported_to_touch_and_whether_reading_counts(root: Path, mailer: Path) -> None:
    make(root / "alice/one")
    values = settings(root, mode="delete", warn=DAY, mail="local", sendmail=str(mailer), ignore_reads=True)

    apply(values, LATER)

    mail = (mailer.parent / "mails").read_text()
    assert "what was not changed for 60 days is deleted" in mail
    assert "To keep a file, `touch` it or copy it" in mail
    assert "To read it keeps nothing" in mail
    assert f"    {time.strftime('%Y-%m-%d', time.localtime(LATER + DAY))} alice/one" in mail
    assert "touch it" in (root / ".to_delete/root").read_text()


def test_refuses_a_directory_that_should_be_a_mount_and_is_none(root: Path) -> None:
    make(root / "alice/old")

    with pytest.raises(TreeError, match="is not mounted"):
        apply(settings(root, mode="delete", mounted=True), LATER)

    assert left(root) == {"alice/old"}


@as_root
def test_a_directory_that_cannot_be_read_is_a_problem_and_no_end(root: Path) -> None:
    """Root reads everything, except where a server squashes root: so it is without these capabilities."""
    make(root / "alice/closed/secret")
    make(root / "bob/old")
    os.chown(root / "alice/closed", 1234, 1234)
    (root / "alice/closed").chmod(0)
    lost = "-dac_override,-dac_read_search"
    command = f"setpriv --bounding-set {lost} --inh-caps {lost} {configured(root, mode='list')} --json"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)

    assert done.returncode == cli.PROBLEMS, done.stderr
    result = json.loads(done.stdout)
    assert result["problems"] == ["alice/closed: Permission denied"]
    assert result["due"] == 1


# --- races


def attacked(root: Path, attack: Callable[[], object]) -> list[str]:
    """List, let the owner do something between the first and the second deletion, continue; why each was kept."""
    result: list[Record] = []
    list_due(settings(root), LATER, result.append)
    result.sort(key=lambda record: record.path)

    def one_by_one() -> Iterator[Record]:
        for number, record in enumerate(result):
            if number == 1:
                attack()
            yield record

    with OpenPath(str(root), 1000) as way:
        outcomes = list(deleting.delete(way, one_by_one(), AGES))
    assert not any(outcome.is_trouble for outcome in outcomes)
    return [outcome.why_kept for outcome in outcomes]


@contextmanager
def attacking(directory: Path, deed: str) -> Iterator[None]:
    """A second process that does it again and again in the directory."""
    code = f"import os\n{deed}"
    attacker = subprocess.Popen([sys.executable, "-c", code], cwd=directory)
    try:
        yield
    finally:
        attacker.kill()
        attacker.wait()


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory outside with the names that are listed inside."""
    for name in ("one", "two"):
        make(tmp_path / "outside/work" / name, "precious")
    return tmp_path / "outside/work"


@pytest.mark.parametrize(("moved", "link"), [("alice/work", True), ("alice", False)])
def test_a_directory_moved_out_of_the_tree_is_left_alone_and_a_link_in_its_place_not_followed(
    root: Path, victim: Path, moved: str, link: bool
) -> None:
    for name in ("one", "two"):
        make(root / "alice/work" / name)

    def attack() -> None:
        (root / moved).rename(root.parent / "taken")
        if link:
            (root / moved).symlink_to(victim)

    assert attacked(root, attack) == ["", "moved out of its directory"]
    assert left(victim) == {"one", "two"}
    assert len([*(root.parent / "taken").rglob("two")]) == 1


def test_a_directory_replaced_between_a_look_at_it_and_its_opening_is_not_entered(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "precious/one")
    make(root / "alice/work/one")
    opened = tree._open_directory

    def attack(name: bytes, within: int | None) -> int:
        if name == b"work":
            (root / "alice/work").rename(root / "alice/away")
            (tmp_path / "precious").rename(root / "alice/work")
        return opened(name, within)

    monkeypatch.setattr(tree, "_open_directory", attack)
    with OpenPath(str(root), 1000) as way:
        way.enter(b"alice")
        with pytest.raises(tree.NotEnteredError, match="replaced meanwhile"):
            way.enter(b"work")


def replace(two: Path) -> None:
    # not unlinked: its number must not come back
    two.rename(two.with_name("zzz"))
    make(two, "new")


@pytest.mark.parametrize(
    ("attack", "why_kept"),
    [
        (replace, "replaced since it was listed"),
        (lambda two: os.utime(two, (LATER - 5, LATER - 5)), "used since it was listed"),
        # a run over a large tree takes hours
        (lambda two: os.utime(two, (LATER + 5 * 3600, 0)), "used since it was listed"),
        (Path.unlink, "gone"),
    ],
)
def test_what_was_replaced_or_used_since_it_was_listed_is_left_alone(
    root: Path, attack: Callable[[Path], object], why_kept: str
) -> None:
    one, two = make(root / "alice/one"), make(root / "alice/two")

    assert attacked(root, lambda: attack(two)) == ["", why_kept]
    assert not one.exists()
    assert two.exists() == (why_kept != "gone")


def test_a_hard_link_that_is_used_meanwhile_keeps_the_other(root: Path) -> None:
    one = make(root / "alice/one")
    os.link(one, root / "alice/two")

    kept = attacked(root, lambda: os.utime(root / "alice/two", (LATER - 5, 0)))

    assert kept == ["", "used since it was listed"]


def test_an_owner_who_swaps_directories_all_the_time_gets_nothing_outside_deleted(root: Path, victim: Path) -> None:
    """A second process exchanges a directory and a link to the victim as quickly as it can."""
    swap = (
        "while True:\n"
        "    for old, new in (('work', 'away'), ('link', 'work'), ('work', 'link'), ('away', 'work')):\n"
        "        os.rename(old, new)\n"
    )
    (root / "alice").mkdir()
    (root / "alice/link").symlink_to(victim)
    make(root / "alice/work/one")
    # links themselves may go, and end the attack: they are kept here
    values = settings(root, mode="delete", exclude=["link"])
    with attacking(root / "alice", swap):
        for _ in range(150):
            make_in_either(root / "alice")
            apply(values, LATER)

    assert left(victim) == {"one", "two"}


def make_in_either(directory: Path) -> None:
    """Put files back through whichever name the directory has; never through the link."""
    for name in ("work", "away"):
        try:
            handle = os.open(directory / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        for file in ("one", "two"):
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        os.close(handle)


# --- notice


def test_nobody_loses_a_file_before_the_whole_notice(root: Path, tmp_path: Path) -> None:
    make(root / "alice/old.dat")
    values = settings(root, mode="delete", warn=7 * DAY)
    descriptors = len([*Path("/proc/self/fd").iterdir()])

    runs = [apply(values, LATER + day * DAY) for day in range(9)]

    assert [run.deleted for run in runs] == [0] * 7 + [1, 0]
    assert [run.warned for run in runs] == [1] * 7 + [0, 0]
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors
    # what is moved in when it is old already gets its notice as well
    make(tmp_path / "data/precious")
    (tmp_path / "data").rename(root / "alice/data")
    assert [apply(values, LATER + (9 + day) * DAY).deleted for day in range(8)] == [0] * 7 + [1]


def test_a_clock_that_jumps_starts_the_notice_again(root: Path) -> None:
    make(root / "alice/old.dat")
    values = settings(root, mode="delete", warn=7 * DAY)
    apply(values, LATER)

    jumped = apply(values, LATER + 1000 * DAY)

    assert jumped.deleted == 0
    assert "nothing is deleted before 7 days of notice" in jumped.notes[0]


def test_after_a_jump_of_the_clock_a_run_deletes_nothing_though_nobody_is_reported_before(root: Path) -> None:
    make(root / "alice/old.dat")
    values = settings(root, mode="delete", warn=0)
    apply(values, int(time.time()))

    jumped = apply(values, LATER)

    assert (jumped.due, jumped.deleted) == (1, 0)
    assert jumped.notes == ["nothing deleted: the last run was not in the last days; the next run deletes"]
    assert apply(values, LATER + DAY).deleted == 1


def test_a_run_that_is_cut_off_remembers_no_notice(root: Path) -> None:
    (root.parent / "state").mkdir()
    first = Warned(str(root.parent / "state/warned"), LATER)
    first.note(1, 0)
    first.close()

    second = Warned(str(root.parent / "state/warned"), LATER + DAY)

    assert second.note(1, 0) == LATER + DAY
    second.close()


def test_a_file_used_within_its_notice_starts_again(root: Path) -> None:
    path = make(root / "alice/old.dat")
    values = settings(root, mode="delete", warn=7 * DAY)
    apply(values, LATER)
    os.utime(path, (LATER + DAY, LATER + DAY))

    runs = [apply(values, LATER + day * DAY) for day in range(1, 9)]

    assert [run.deleted for run in runs] == [0] * 8
    assert path.exists()


@as_root
def test_every_user_finds_a_list_of_what_goes(root: Path) -> None:
    alice, bob = make(root / "alice/one"), make(root / "alice/bobs\nfile")
    os.chown(alice, 61001, 61001)
    os.chown(bob, 61002, 61002)
    values = settings(root, mode="delete", warn=7 * DAY)

    summary = apply(values, LATER)

    lists = root / walk.NOTICES.decode()
    assert summary.users_warned == 2
    assert sorted(path.name for path in lists.iterdir()) == ["61001", "61002"]
    assert stat.S_IMODE(lists.stat().st_mode) == 0o711
    mine = (lists / "61002").stat()
    assert (mine.st_uid, stat.S_IMODE(mine.st_mode)) == (61002, 0o400)
    deletion_time = time.strftime("%Y-%m-%d", time.localtime(LATER + 7 * DAY))
    assert (lists / "61002").read_text().splitlines()[1:] == [f"{deletion_time} $'alice/bobs\\012file'"]
    # the lists are none of the tree's files, and go with what they tell of
    bob.unlink()
    assert apply(values, LATER + DAY).looked_at["files"] == 1
    assert [path.name for path in lists.iterdir()] == ["61001"]


@as_root
@pytest.mark.parametrize("what", ["directory", "directory closed to others", "file", "link", "root's, but open to all"])
def test_nobody_stops_the_purge_by_taking_the_place_of_the_lists(root: Path, tmp_path: Path, what: str) -> None:
    """What a user put there is moved aside, and nothing is written through it."""
    make(root / "alice/old")
    (tmp_path / "elsewhere").mkdir(mode=0o777)
    taken = root / walk.NOTICES.decode()
    if what == "link":
        taken.symlink_to(tmp_path / "elsewhere")
    elif what == "file":
        make(taken)
    else:
        make(taken / "his")
        taken.chmod(0o711 if what.endswith("closed to others") else 0o777)
    if not what.startswith("root"):
        os.chown(taken, 61001, 61001, follow_symlinks=False)
    values = settings(root, mode="delete", warn=7 * DAY)

    runs = [apply(values, LATER + day * DAY) for day in range(9)]

    assert [run.deleted for run in runs][7] > 0
    assert not (root / "alice/old").exists()
    status = taken.lstat()
    assert (stat.S_ISDIR(status.st_mode), status.st_uid, stat.S_IMODE(status.st_mode)) == (True, 0, 0o711)
    assert "the path of the lists was taken: what was there is now .to_delete." in " ".join(runs[0].notes)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@as_root
def test_nobody_stops_the_purge_by_mounting_in_the_place_of_the_lists(root: Path) -> None:
    taken = root / walk.NOTICES.decode()
    taken.mkdir()
    make(root / "alice/old")
    command = f"{configured(root, warn=3600)} --json; stat -c %u {taken}; ls {taken}"

    done = with_mounts(f"mount -t tmpfs -o uid=61001 none {taken}; touch {taken}/his; {command}")

    first, owner, lists = done.stdout.splitlines()
    assert (json.loads(first)["problems"], owner, lists) == ([], "0", "root")


@as_root
def test_a_user_who_takes_the_place_of_the_lists_again_and_again_stops_nothing(root: Path) -> None:
    again = (
        "os.setgid(61001); os.setuid(61001)\n"
        "while True:\n"
        "    try: os.close(os.open('.to_delete', os.O_CREAT | os.O_EXCL))\n"
        "    except OSError: pass\n"
    )
    make(root / "alice/old")
    (root / ".to_delete").mkdir()
    root.parent.chmod(0o755)
    values = settings(root, mode="delete", warn=7 * DAY)
    with attacking(root, again):
        for day in range(8):
            # as where another user had it from the beginning
            (root / ".to_delete").rename(root / f"kept{day}")
            apply(values, LATER + day * DAY)

    assert not (root / "alice/old").exists()


@as_root
def test_where_a_list_cannot_be_written_only_its_user_keeps_what_is_new(root: Path) -> None:
    """The disk is full of what one user wrote: what others were told of goes, and makes room."""
    purge = f"{configured(root, warn=3600, exclude=['filling'])} --json"

    def step(later: int) -> str:
        return purge.replace("7200", f"{later * 3600}")

    done = with_mounts(
        f"mount -t tmpfs -o size=256k,mode=1777 none {root}; mkdir {root}/alice; echo x >{root}/alice/told;"
        f"{step(2)}; cat /dev/zero >{root}/filling 2>/dev/null; "
        f"touch {root}/alice/new; chown 61001 {root}/alice/new; {step(4)}; ls {root}/alice;"
        f"rm {root}/filling; {step(6)}; ls {root}/alice; {step(8)}; ls {root}/alice"
    )

    lines = done.stdout.splitlines()
    reported, full, room, last = (json.loads(line) for line in lines if line.startswith("{"))
    assert (reported["deleted"], reported["problems"]) == (0, [])
    assert (full["deleted"], full["problems"]) == (1, ["no list for 61001: No space left on device"])
    assert (room["deleted"], room["problems"], last["deleted"]) == (0, [], 1)
    assert lines.count("new") == 2


@as_root
def test_lists_stay_small_whatever_users_name_their_files(root: Path) -> None:
    """A thousand empty files in 300 nested directories once made 71 MiB of lists."""
    nest(root, 300, "d" * 200, 1200)
    os.chown(make(root / "alice/hers"), 61001, 61001)
    values = settings(root, mode="delete", warn=DAY)

    reported = apply(values, LATER)
    mine, hers = (root / ".to_delete" / name for name in ("root", "61001"))
    size, other = mine.stat().st_size, hers.read_text()
    rest = mine.read_text().splitlines()[-1]
    gone = apply(values, LATER + DAY)

    assert (reported.warned, gone.deleted, gone.problems) == (1201, 1201, [])
    assert size < (1 << 20) + 1000
    assert rest.startswith("# and ")
    argv, english = ["bash", "-c", rest.partition(": ")[2]], {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    result = subprocess.run(argv, capture_output=True, text=True, env=english)
    assert (result.returncode, result.stderr) == (0, "")
    assert "alice/hers" in other
    assert (root.parent / "state/due").stat().st_size < 300_000
    assert sum(log.stat().st_size for log in (root.parent / "logs").iterdir()) < 3 << 20


@pytest.fixture
def mailer(tmp_path: Path) -> Path:
    return write_program(tmp_path / "sendmail", f"cat >> {tmp_path}/mails\necho >> {tmp_path}/mails")


@as_root
def test_mails_each_user_twice_a_notice_at_most(root: Path, mailer: Path) -> None:
    make(root / "alice/one")
    os.chown(make(root / "alice/nobodys"), 61001, 61001)
    values = settings(root, mode="delete", warn=8 * DAY, mail="hpc.example.com", sendmail=str(mailer))

    runs = [apply(values, LATER + day * DAY) for day in range(8)]

    assert [run.mails for run in runs] == [1, 0, 0, 0, 1, 0, 0, 0]
    first = (mailer.parent / "mails").read_text().split("To: ")[1]
    assert first.startswith("root@hpc.example.com\nSubject: 1 of your files in ")
    assert f"{root}/.to_delete/root" in first
    assert all(run.ok for run in runs)


def test_says_once_that_there_is_no_mailer_and_goes_on(root: Path) -> None:
    make(root / "alice/one")
    values = settings(root, mode="delete", warn=DAY, mail="local", sendmail="/nonexistent/sendmail")

    first = apply(values, LATER)
    second = apply(values, LATER + DAY)

    assert first.problems == ["no mail was sent: /nonexistent/sendmail is not installed"]
    assert second.deleted == 1


@as_root
def test_a_mailer_that_hangs_is_not_called_for_every_user(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_MAIL_SECONDS", 3)
    monkeypatch.setattr(notices, "user_name", lambda uid: f"user{uid}x")
    for uid in (61001, 61002):
        os.chown(make(root / f"alice/{uid}"), uid, uid)
    program = write_program(tmp_path / "sendmail", f"echo called >> {tmp_path}/calls; exec sleep 60")

    run = apply(settings(root, mode="delete", warn=DAY, mail="local", sendmail=str(program)), LATER)

    assert (tmp_path / "calls").read_text() == "called\n"
    assert run.problems == [f"no mail was sent: {program}: no answer within 3 s"]


# --- the program


def test_two_runs_at_a_time_are_one_too_many(root: Path) -> None:
    values = settings(root)

    with exclusive_lock(values), pytest.raises(BusyError, match="another run of scratch"):
        listed(values)


def test_what_grows_with_the_tree_is_not_held_in_memory(root: Path) -> None:
    """Ten times the files, in one directory: the same memory, but for what Python itself keeps."""

    def peak(count: int) -> int:
        nest(root / "alice", 0, "", count)
        tracemalloc.start()
        apply(settings(root, mode="delete", warn=DAY), LATER)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    (root / "alice").mkdir()
    apply(settings(root, mode="delete", warn=DAY), LATER)
    few, many = peak(400), peak(4000)

    # 3600 more, of which not even a path and a number are kept; lists of users wait up to a megabyte
    assert many < few + (1 << 20)


def test_thousands_of_nested_directories_with_long_names_do_not_fill_the_memory(root: Path) -> None:
    """Their paths together have 290 MB."""
    nest(root, 1500, "d" * 255, 1)
    tracemalloc.start()
    try:
        summary = apply(settings(root, mode="delete", warn=0), LATER)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        subprocess.run(["rm", "-rf", root / ("d" * 255)], check=True)

    assert summary.deleted == 1
    assert peak < 20 << 20


@pytest.mark.parametrize(
    ("values", "words"),
    [
        *(({"root": root}, "") for root in ("/var/scratch", "/srv/nfs/scratch", "/home/scratch", "/opt/scratch")),
        ({"root": "/"}, "the whole node"),
        ({"root": "/etc"}, "belongs to the system"),
        ({"root": "/var"}, "belongs to the system"),
        ({"root": "/var/lib/mysql"}, "belongs to the system"),
        ({"root": "/data/home"}, "homes of users"),
        ({"root": "/export/Homes"}, "homes of users"),
        ({"root": "/scratch/../etc"}, "plain form"),
        ({"root": "scratch"}, "plain form"),
        ({"age": 60}, "an hour at least"),
        ({"warn": AGE + 1}, "warn not more than age"),
        ({"mode": "remove"}, "mode is one of"),
        ({"age": "60d"}, "whole seconds"),
        ({"ages": 1}, "unknown: ages"),
    ],
)
def test_refuses_settings_that_could_delete_what_nobody_meant(values: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words) if words else nullcontext():
        from_object({"name": "scratch", "root": "/scratch", "age": AGE, **values})


def test_the_program_lists_for_people_and_for_programs(
    root: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root / "alice/two\nlines")
    config = root.parent / "purge.json"
    config.write_text(json.dumps(settings(root).__dict__))
    monkeypatch.setattr(time, "time", lambda: LATER)

    assert cli.main([str(config)]) == cli.OK
    plain = capfdbinary.readouterr()
    assert cli.main([str(config), "--print0"]) == cli.OK
    zero = capfdbinary.readouterr()
    assert cli.main([str(config), "--json"]) == cli.OK
    result = json.loads(capfdbinary.readouterr().out)

    assert plain.out.endswith(b"  $'alice/two\\012lines'\n")
    assert b"1 due" in plain.err
    assert zero.out == b"alice/two\nlines\0"
    assert (result["command"], result["due"], result["deleted"]) == ("deepops-purge", 1, 0)


def test_a_configuration_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "purge.json").write_text('{"name": "scratch"}')

    assert cli.main([str(tmp_path / "purge.json")]) == cli.INVALID
    assert str(tmp_path / "purge.json") in capsys.readouterr().err


def test_a_damaged_memory_of_notices_is_named_and_nothing_deleted(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(root / "alice/old.dat")
    make(root.parent / "state/warned", "no database")
    configured(root)

    assert cli.main([str(root.parent / "purge.json"), "--apply"]) == cli.PROBLEMS
    assert f"error: {root.parent}/state/warned: file is not a database: " in capsys.readouterr().err
    assert path.exists()
