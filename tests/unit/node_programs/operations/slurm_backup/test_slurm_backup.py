"""Sets: what is copied of a state that others may write, which snapshot is restored, what is never replaced."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.operations.slurm_backup import (
    LAST,
    BackupError,
    cli,
    collect,
    dump,
    rehearse,
    repository,
    restore,
)
from deepopsctl.node_programs.operations.slurm_backup.repository import Snapshot
from tests.support.files import write_files, write_program


@pytest.fixture
def state(tmp_path: Path) -> Path:
    names = ("clustername", "job_state", "heartbeat", "hash.1/job.11/script")
    return write_files(tmp_path / "slurmctld", {name: name for name in names})


def test_a_set_has_plain_files_of_the_state_and_no_file_that_a_link_leads_to(state: Path, tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("root's")
    (state / "link").symlink_to(secret)
    (state / "directory").symlink_to(tmp_path)
    os.mkfifo(state / "pipe")
    assert collect.copy_state(str(state), str(tmp_path / "set"))
    actual = {str(path.relative_to(tmp_path / "set")) for path in (tmp_path / "set").rglob("*") if path.is_file()}
    assert actual == {"clustername", "job_state", "hash.1/job.11/script"}


def test_a_state_that_changes_all_the_time_is_saved_and_said_to_be_incomplete(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = collect._copy_tree

    def copy_while_written(source: str, target: str) -> None:
        copy(source, target)
        new = state / "job_state.new"
        new.write_text("newer")
        new.rename(state / "job_state")

    monkeypatch.setattr(collect, "_copy_tree", copy_while_written)
    monkeypatch.setattr(collect, "PAUSE_S", 0)
    assert not collect.copy_state(str(state), str(tmp_path / "set"))


def test_a_backup_that_was_cut_off_is_recorded_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(cli, "TEXTFILE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(cli, "UNDER_WAY", {})
    monkeypatch.setattr(cli, "_save", stop)

    with pytest.raises(KeyboardInterrupt):
        cli.make_backup({"parts": ["state"]})

    assert json.loads((tmp_path / LAST).read_text())["message"] == "it was cut off: see its journal"
    (metrics,) = tmp_path.glob("*.prom")
    assert "deepops_backup_failed 1\n" in metrics.read_text()


def test_a_directory_without_a_state_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="is it StateSaveLocation"):
        collect.copy_state(str(tmp_path), str(tmp_path / "set"))


def snapshot(name: str, time: str, *parts: str) -> Snapshot:
    return Snapshot(name, time if "T" in time else f"2026-11-26T08:0{time}:00Z", "ctl1", list(parts), "/set")


BOTH = [snapshot("new", "2", "state", "accounting"), snapshot("old", "1", "state", "accounting")]


@pytest.mark.parametrize(
    ("snapshots", "asked", "expected"),
    [
        pytest.param(BOTH, "", {"state": "new", "accounting": "new"}, id="the newest"),
        pytest.param(BOTH, "old", {"state": "old", "accounting": "old"}, id="the one asked for"),
        pytest.param(
            [snapshot("d3", "3", "accounting"), snapshot("s2", "2", "state"), snapshot("d1", "1", "accounting")],
            "", {"state": "s2", "accounting": "d3"}, id="a database that was saved after the state",
        ),
        pytest.param(
            [snapshot("s2", "2", "state"), snapshot("d1", "1", "accounting")],
            "", {"state": "s2", "accounting": "d1"}, id="an older database where there is no other",
        ),
        pytest.param(
            [
                snapshot("d2", "2026-11-26T08:02:00.5Z", "accounting"),
                snapshot("s1", "2026-11-26T09:01:00.123456789+01:00", "state"),
                snapshot("d0", "2026-11-26T10:00:00+02:00", "accounting"),
            ],
            "", {"state": "s1", "accounting": "d2"}, id="hosts in different time zones",
        ),
    ],
)  # fmt: skip
def test_the_database_of_a_restore_knows_the_jobs_of_its_state(
    snapshots: list[Snapshot], asked: str, expected: dict[str, str]
) -> None:
    chosen = restore.choose(snapshots, asked, ["state", "accounting"])
    assert {part: actual.id for part, actual in chosen.items()} == expected


@pytest.mark.parametrize(("asked", "words"), [("", "no snapshot with state"), ("other", "no snapshot")])
def test_a_repository_without_what_is_asked_for_is_an_error(asked: str, words: str) -> None:
    with pytest.raises(BackupError, match=words):
        restore.choose([snapshot("d1", "1", "accounting")], asked, ["state"] if not asked else ["accounting"])


@pytest.fixture
def fetched(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "restored"
    monkeypatch.setattr(restore, "RESTORED", str(directory))
    monkeypatch.setattr(restore, "CURRENT", str(directory / "current.json"))
    assert collect.copy_state(str(state), str(directory / "set" / "state"))
    (directory / "current.json").write_text(f'{{"state": {{"snapshot": "ab12", "set": "{directory}/set"}}}}')
    return directory


def test_a_state_is_restored_once_and_never_over_another(fetched: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    assert restore.put_state(str(target), "root", {})
    assert (target / "hash.1/job.11/script").read_text() == "hash.1/job.11/script"
    (target / "job_state").write_text("slurmctld has gone on")
    assert not restore.put_state(str(target), "root", {})
    assert (target / "job_state").read_text() == "slurmctld has gone on"
    (fetched / "state.done").unlink()
    (fetched / "state.begun").unlink()
    with pytest.raises(BackupError, match="nothing was changed"):
        restore.put_state(str(target), "root", {})


def test_a_state_is_not_restored_below_an_empty_mount_point(fetched: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="nothing is mounted"):
        restore.is_missing(str(tmp_path / "slurmctld"), str(tmp_path))


@pytest.mark.parametrize(("state", "stops"), [("active", True), ("activating", True), ("failed", False)])
def test_a_slurmctld_that_runs_or_is_about_to_is_stopped_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, stops: bool
) -> None:
    log = tmp_path / "log"
    program = write_program(tmp_path / "bin" / "systemctl", f'echo "$1" >> {log}; echo {state}')
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")

    assert restore.stop_slurmctld() is stops
    assert ("stop" in log.read_text().split()) is stops


def test_what_was_fetched_is_forgotten_only_while_nothing_of_it_was_brought_back(fetched: Path, tmp_path: Path) -> None:
    restore.put_state(str(tmp_path / "new"), "root", {})
    assert not restore.forget()
    (fetched / "state.begun").unlink()
    assert restore.forget()
    assert not fetched.exists()
    assert not restore.forget()


class Repository(repository.Repository):
    """One whose snapshot is a directory of a test."""

    def __init__(self, files: dict[str, str], size: int = 0) -> None:
        self.files, self.size = files, size

    def size_of(self, snapshot: str) -> int:
        return self.size

    def restore(self, snapshot: Snapshot, target: str) -> None:
        write_files(Path(target) / "set", self.files)


@pytest.mark.parametrize(
    ("action", "first", "called"),
    [
        ("check", "unable to create lock: repository is already locked by PID 1", "check check"),
        ("prepare", "unable to open config file: there is none", "cat init cat unlock"),
    ],
)
def test_a_repository_that_another_host_prunes_or_makes_meanwhile_is_waited_for_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, first: str, called: str
) -> None:
    fails_once = f"[ $(grep -c $1 {tmp_path}/calls) -gt 1 ] || {{ echo 'Fatal: {first}' >&2; exit 1; }}"
    script = f"echo $1 >> {tmp_path}/calls; {fails_once}"
    program = write_program(tmp_path / "bin" / "restic", script)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(repository, "CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(repository, "PAUSE_S", 0.0)

    getattr(repository.Repository({"cluster": "hpc", "repository": "/r", "password": "x"}), action)()

    assert (tmp_path / "calls").read_text().split() == called.split()


def test_a_set_that_is_not_what_was_saved_or_has_no_room_is_refused(tmp_path: Path) -> None:
    # sha256sum of `a`
    manifest = '{"files": {"state/job_state": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}}'
    good = Repository({"manifest.json": manifest, "state/job_state": "a"})
    damaged = Repository({**good.files, "state/job_state": "b"})

    large = Repository(good.files, size=1 << 60)
    for name in ("good", "damaged", "large"):
        (tmp_path / name).mkdir()

    assert restore.fetch_one(good, snapshot("aa", "1", "state"), str(tmp_path / "good"))
    with pytest.raises(BackupError, match="not what was saved: state/job_state"):
        restore.fetch_one(damaged, snapshot("aa", "1", "state"), str(tmp_path / "damaged"))
    # before the disk of a controller is full
    with pytest.raises(BackupError, match="iB are free, snapshot aa has 1 EiB"):
        restore.fetch_one(large, snapshot("aa", "1", "state"), str(tmp_path / "large"))
    assert list((tmp_path / "large").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "linked directory", "pipe", "more than the manifest has"])
def test_a_set_is_plain_files_that_its_manifest_names(tmp_path: Path, kind: str) -> None:
    (tmp_path / "shadow").write_text("root's")

    class Hostile(Repository):
        def restore(self, snapshot: Snapshot, target: str) -> None:
            super().restore(snapshot, target)
            entry = Path(target) / "set" / "state" / "new"
            if kind == "pipe":
                os.mkfifo(entry)
            elif kind == "more than the manifest has":
                entry.write_text("x")
            else:
                entry.symlink_to(tmp_path if "directory" in kind else tmp_path / "shadow")

    manifest = json.dumps({"files": {"state/job_state": sha256(b"a").hexdigest()}})
    hostile = Hostile({"manifest.json": manifest, "state/job_state": "a"})
    (tmp_path / "restored").mkdir()
    with pytest.raises(BackupError, match=r"is not a plain file|not what was saved: state/new"):
        restore.fetch_one(hostile, snapshot("aa", "1", "state"), str(tmp_path / "restored"))


NODE = '{"struct_type":"node","type":"%s","path":"%s"}'
ENTRIES = [NODE % ("dir", "/set"), NODE % ("file", "/set/manifest.json")]


@pytest.mark.parametrize(
    "entry",
    [
        NODE % ("symlink", "/set/state"), NODE % ("fifo", "/set/a"), NODE % ("dev", "/set/a"),
        NODE % ("chardev", "/set/a"), NODE % ("socket", "/set/a"),
        # written through a link of that name, or outside
        NODE % ("file", "/set/manifest.json"), NODE % ("file", "/etc/passwd"), NODE % ("file", "/set/../etc/passwd"),
    ],
)  # fmt: skip
def test_nothing_is_written_of_a_snapshot_that_has_more_than_plain_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    listed = tmp_path / "listed"
    program = write_program(
        tmp_path / "bin" / "restic", f"echo $1 >> {tmp_path}/calls; [ $1 = restore ] || cat {listed}"
    )
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(repository, "CACHE", str(tmp_path / "cache"))
    one = repository.Repository({"cluster": "hpc", "repository": "/r", "password": "x"})

    listed.write_text("\n".join(['{"struct_type":"snapshot"}', *ENTRIES]))
    one.restore(snapshot("aa", "1", "state"), str(tmp_path / "target"))
    listed.write_text("\n".join([*ENTRIES, entry]))
    with pytest.raises(BackupError, match="which is not a plain file or directory of a set: nothing of it is restored"):
        one.restore(snapshot("aa", "1", "state"), str(tmp_path / "target"))
    assert (tmp_path / "calls").read_text().split() == ["ls", "restore", "ls"]


@pytest.fixture
def mariadb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of what the client was called with."""
    log = tmp_path / "mariadb.log"
    program = write_program(tmp_path / "bin" / "mariadb", f'echo "$@" >> {log}; cat >> {log}')
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return log


DUMP = """/*M!999999\\- enable the sandbox mode */
-- MariaDB dump 10.19
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;
DROP TABLE IF EXISTS `acct_table`;
CREATE TABLE `acct_table` (
  `name` tinytext NOT NULL,
  PRIMARY KEY (`name`(42))
) ENGINE=InnoDB;

LOCK TABLES `acct_table` WRITE;
INSERT INTO `acct_table` VALUES
('a\\n\\! id'),
('b');
UNLOCK TABLES;
"""


@pytest.mark.parametrize(
    "line",
    [
        "\\! touch /tmp/x", "  \\! id", "system id", "source /etc/passwd", "GRANT ALL ON *.* TO 'x'@'%';",
        "CREATE USER x;", "INSTALL SONAME 'x';", "SELECT 1 INTO OUTFILE '/tmp/x';", "LOAD DATA LOCAL INFILE '/x'",
        "DELIMITER ;;", "USE mysql;", "create function f;", "SET GLOBAL general_log=1;", "DROP DATABASE mysql;",
        "\\u mysql",
    ],
)  # fmt: skip
def test_a_dump_has_tables_and_nothing_that_would_be_run(tmp_path: Path, mariadb: Path, line: str) -> None:
    saved = tmp_path / "accounting.sql"
    saved.write_text(f"{DUMP}{line}\n")

    with pytest.raises(BackupError, match="line 15 of the dump is none of a table's, so nothing of it is restored"):
        dump.import_dump(str(saved), "slurm_acct_db")
    assert not mariadb.exists()


def test_a_dump_is_read_without_commands_by_a_user_for_this_database_alone(tmp_path: Path, mariadb: Path) -> None:
    saved = tmp_path / "accounting.sql"
    saved.write_text(DUMP)

    dump.import_dump(str(saved), "slurm_acct_db")

    log = mariadb.read_text()
    made, _, rest = log.partition("--defaults-extra-file=")
    assert "LOCK TABLES ON `slurm_acct_db`.* TO 'deepops_restore'@'localhost'" in made
    assert rest.partition("\n")[0].split()[1:] == [
        "--binary-mode", "--loose-sandbox", "--loose-local-infile=0", "slurm_acct_db"
    ]  # fmt: skip
    assert rest.rstrip().endswith("DROP USER IF EXISTS 'deepops_restore'@'localhost';")


def test_a_rehearsal_takes_nodes_of_a_set_and_no_other_line() -> None:
    saved = [
        "PluginDir=/tmp\n", "SlurmUser=root\n", "NodeName=n1 CPUs=2 \\\n", "  Gres=gpu:1\n", "Include /etc/shadow\n",
        " partitionname = p Nodes=n1\n", "NodeName=x\x0bPluginDir=/tmp\n", "PrologSlurmctld=/tmp/x\n",
        "GresTypes=gpu\n",
    ]  # fmt: skip

    assert rehearse.nodes_of(saved) == [
        "NodeName=n1 CPUs=2    Gres=gpu:1\n", "partitionname = p Nodes=n1\n", "NodeName=x\n", "GresTypes=gpu\n"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "manifest",
    ["[]", '{"files": {}, "finished": "now"}', '{"files": [1]}', '{"files": {}, "jobs": [{"id": "$(id)"}]}',
     '{"files": {}, "database": {"rows": 7}}', '{"files": {"a": 1}}', "\u001b", '{"files": {}, "jobs": 3}'],
)  # fmt: skip
def test_a_manifest_that_is_none_is_a_damage_and_no_traceback(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(BackupError, match="no readable manifest"):
        restore.read_manifest(str(tmp_path))


def test_a_set_with_a_large_database_has_hours_to_be_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, float] = {}

    def run(argv: list[str], limit_s: float, **_more: str) -> Result:
        limits[argv[0]] = limit_s
        return Result(argv[0], 0, "{}", "", 0.1)

    monkeypatch.setattr(command, "run", run)
    config = {"cluster": "hpc", "database": "slurm_acct_db", "state_directory": "/var/spool/slurmctld"}
    monkeypatch.setattr(rehearse, "_addresses", list)

    assert rehearse._in_namespaces(config, "place", {}) == {}
    assert limits["unshare"] > collect.DATABASE_S


def test_a_job_is_on_a_node_where_root_runs_a_step_of_it(tmp_path: Path) -> None:
    for number, (line, uid) in enumerate([("slurmstepd: [41.batch]", 0), ("slurmstepd: [42.0]", 1000), ("sleep", 0)]):
        process = tmp_path / str(number)
        process.mkdir()
        (process / "cmdline").write_bytes(line.encode() + bytes(1))
        os.chown(process / "cmdline", uid, uid)
    assert restore.jobs_here(str(tmp_path)) == [41]


def test_a_program_with_roots_rights_that_a_user_started_is_no_step(tmp_path: Path) -> None:
    """sudo, waiting for a password: the files of its process are root's, and its name is the user's choice."""
    for number, (real, mode) in enumerate([(0, 0o755), (1000, 0o755), (0, 0o4755)]):
        process = tmp_path / str(number)
        process.mkdir()
        (process / "cmdline").write_bytes(f"slurmstepd: [{number + 51}.batch]".encode() + bytes(1))
        (process / "status").write_text(f"Name:\tx\nUid:\t{real}\t0\t0\t0\n")
        (process / "exe").touch()
        (process / "exe").chmod(mode)

    assert restore.jobs_here(str(tmp_path)) == [51]


def test_the_command_line_of_a_users_process_is_not_read(tmp_path: Path) -> None:
    """It lies in the process's memory, maybe in a file whose server never answers: here, a pipe without a writer."""
    (tmp_path / "7").mkdir()
    os.mkfifo(tmp_path / "7" / "cmdline")
    os.chown(tmp_path / "7" / "cmdline", 1000, 1000)

    assert restore.jobs_here(str(tmp_path)) == []


def test_a_restore_that_was_cut_off_goes_on(fetched: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    restore.put_state(str(target), "root", {})
    (fetched / "state.done").unlink()
    (target / "job_state").unlink()
    assert restore.put_state(str(target), "root", {})
    assert (target / "job_state").exists()


def test_a_restore_that_was_cut_off_is_not_mixed_with_another(fetched: Path, tmp_path: Path) -> None:
    restore.put_state(str(tmp_path / "new"), "root", {})

    for asked, parts in (("cd34", ["state"]), ("", ["accounting"]), ("", ["state", "accounting"])):
        with pytest.raises(BackupError, match="state of snapshot ab12 is half restored"):
            restore.fetch({}, asked, parts)
    assert restore.has_begun()


def test_what_a_restore_has_not_begun_with_may_be_left_out(fetched: Path, tmp_path: Path) -> None:
    entry = {"snapshot": "ab12", "set": str(fetched / "set")}
    (fetched / "current.json").write_text(json.dumps({"state": entry, "accounting": entry}))
    manifest = {"cluster": "hpc", "host": "ctl1", "finished": 1, "slurm": "24.11.5"}
    (fetched / "set" / "manifest.json").write_text(json.dumps(manifest))
    restore.put_state(str(tmp_path / "new"), "root", {})

    assert set(restore.fetch({}, "", ["state"])) == {"state"}
    assert not restore.put_state(str(tmp_path / "new"), "root", {})


def test_lost_jobs_that_slurm_can_not_requeue_do_not_stop_a_restore(
    fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [{"id": number, "state": "RUNNING", "user": "alice"} for number in (41, 42, 43)]
    (fetched / "set" / "manifest.json").write_text(json.dumps({"jobs": jobs}))
    calls, cancelled = tmp_path / "calls", tmp_path / "cancelled"
    write_program(
        tmp_path / "bin" / "scontrol",
        f"""case "$1" in
            --oneliner) echo 'NodeName=cn01 State=IDLE SlurmdStartTime=now' ;;
            *) echo "$@" >> {calls}; [ $2 = 41 ] || {{ touch {cancelled}; echo 'Only batch jobs' >&2; exit 1; }} ;;
        esac""",
    )
    write_program(
        tmp_path / "bin" / "squeue",
        f"echo '41|RUNNING|cn01'; echo '42|RUNNING|cn01'; [ -e {cancelled} ] || echo '43|RUNNING|cn01'",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    result = restore.reconcile(1, {"cn01": []})

    assert calls.read_text() == "requeuehold 41\nrequeuehold 42\nrequeuehold 43\n"
    assert result["held"] == [{"id": 41, "user": "alice"}]
    assert result["stuck"] == [{"id": 42, "user": "alice"}]
    # another host may have to compare its own first
    assert fetched.is_dir()
    assert restore.end()
    assert not restore.end()


@pytest.mark.parametrize(
    ("jobs", "silent", "began", "unsure"),
    [
        ({"cn01": [51]}, [], [51], []),
        ({"cn01": [41, 51], "cn02": [51]}, [], [51], []),
        # 77 is not in the set: it may be a task of the array
        ({"cn01": [77]}, [], [], [53]),
        ({}, ["cn02"], [], [51, 53]),
        ({"cn01": [51]}, ["cn02"], [51], [53]),
        # named, though it would not start by itself
        ({"cn01": [52]}, [], [52], []),
        ({}, [], [], []),
    ],
)
def test_what_has_started_since_the_set_was_made_is_held_and_so_is_what_may_have(
    fetched: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: dict[str, list[int]],
    silent: list[str],
    began: list[int],
    unsure: list[int],
) -> None:
    ran = [{"id": 41, "state": "RUNNING", "user": "alice"}, {"id": 51, "state": "PENDING", "user": "bob"}]
    (fetched / "set" / "manifest.json").write_text(json.dumps({"jobs": ran}))
    calls = tmp_path / "calls"
    write_program(
        tmp_path / "bin" / "scontrol",
        f"""case "$1" in
            --oneliner) echo 'NodeName=cn01 State=IDLE SlurmdStartTime=now' ;;
            *) echo "$@" >> {calls} ;;
        esac""",
    )
    # 52 is held by its user, 53 is an array
    write_program(
        tmp_path / "bin" / "squeue",
        """case "$*" in
            *--states=PENDING*) echo '51|51|9|bob'; echo '52|52|0|bob'; echo '53|53_[1-4%2]|9|eve' ;;
            *) echo '41|RUNNING|cn01'; for job in 51 52 53; do echo "$job|PENDING|"; done ;;
        esac""",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    restore.put_state(str(tmp_path / "new"), "root", {"jobs": jobs, "silent": silent})

    result = restore.reconcile(1, {"cn01": [41]})

    assert [[job["id"] for job in result[how]] for how in ("began", "unsure")] == [began, unsure]
    held = sorted([*began, *unsure])
    asked = calls.read_text() if calls.exists() else ""
    assert asked == "".join(f"uhold {job}\n" for job in held if job != 52)
    assert result["pending"] == 3 - len(held)


def test_a_large_database_is_counted_for_longer_than_a_question_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "bin" / "mariadb", "sleep 0.5; printf 'acct_table\\t7\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    limits = collect.sql.__kwdefaults__
    assert limits
    monkeypatch.setitem(limits, "limit_s", 0.1)

    with pytest.raises(BackupError, match=r"MariaDB: mariadb: no answer within 0\.1 s"):
        collect.of_tables("COUNT(*)", "slurm_acct_db")
    monkeypatch.setattr(collect, "ROWS_OF", ())
    assert collect.count_rows("slurm_acct_db", "hpc")["acct_table"] == 7


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("Fatal: wrong password or no key found", "the password in secrets.yml does not open"),
        ("subprocess ssh: Permission denied (publickey).\nFatal: unable to start the sftp session",
         r"can't be reached: root of this host logs in there with a key of its own \(Permission denied"),
        ("Fatal: unable to open config file: stat /r/config: none\nIs there a repository at the following location?",
         "there is no repository in"),
        ("Fatal: ciphertext verification failed", "is damaged"),
        ("Fatal: Get http://x: dial tcp 192.0.2.1:8000: connect: connection refused", "can't be reached"),
        ("Fatal: something else", "restic: Fatal: something else"),
    ],
)  # fmt: skip
def test_what_restic_complains_of_is_said_in_our_words_without_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, words: str
) -> None:
    program = write_program(tmp_path / "bin" / "restic", f"cat >&2 <<'E'\n{printed}\nE\nexit 1")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(repository, "CACHE", str(tmp_path / "cache"))
    one = repository.Repository({"cluster": "hpc", "repository": "rest:https://me:hunter2@host/r", "password": "x"})

    with pytest.raises(BackupError, match=words) as refused:
        one.check()
    assert "hunter2" not in str(refused.value)


def test_a_new_password_is_added_before_others_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path / "known"
    known.write_text("old\n")
    script = f"""grep -qx "$RESTIC_PASSWORD" {known} || {{ echo 'wrong password or no key found' >&2; exit 1; }}
    case "$1 $2" in
        "key add") cat "$4" >> {known}; echo >> {known} ;;
        "key list") echo '[{{"current": false, "id": "aa"}}, {{"current": true, "id": "bb"}}]' ;;
        "key remove") sed -i /old/d {known} ;;
    esac"""
    program = write_program(tmp_path / "bin" / "restic", script)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(repository, "CACHE", str(tmp_path / "cache"))
    config = {"cluster": "hpc", "repository": "/r", "password": "old"}

    assert repository.Repository(config).add_password("fresh")
    assert not repository.Repository(config).add_password("fresh")
    assert repository.Repository({**config, "password": "fresh"}).drop_other_passwords()
    assert known.read_text() == "fresh\n"
