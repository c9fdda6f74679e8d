"""`diskusage_report`: what quota tools print, read; file systems that fail or hang, and the table.

Outputs marked *documented* are put together from manuals and sources, as nobody here has these file systems.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs._shared.settings import SettingsError
from deepopsctl.node_programs.disk_usage import cli, sources, texts
from deepopsctl.node_programs.disk_usage.apart import ask_all
from deepopsctl.node_programs.disk_usage.rows import Amount, FileSystem, Project, Row, Usage, load
from deepopsctl.node_programs.disk_usage.sources import Person, UnansweredError, ask
from deepopsctl.node_programs.disk_usage.table import count, render, size

KIB = 1024
GIB = 1 << 30

# documented: quota(1) of quota-tools 4.06 with --raw-grace --no-wrap; a star is "over the soft limit"
QUOTA = """Disk quotas for user alice (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs1:/srv/home 52428804* 52428800 57671680 1790000000  120034       0  500000       0
"""
QUOTA_NONE = "Disk quotas for user alice (uid 1000): none\n"
# documented: lfs-quota(1) and chapter "Configuring and Managing Quotas" of the Lustre manual
LFS = """Disk quotas for usr bob (uid 500):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
/mnt/lustre/     0      307200  309200  -       0       10000   11000   -
"""
LFS_QUIET_WRAPPED = """     /mnt/a-long-mount-point
                 [1048580]*  1048576 2097152  6d23h59m58s   13       0       0       -
"""
LFS_EXPIRED = "     /scratch  309200*  307200  309200 expired       5   10000   11000       -\n"
# documented: `beegfs-ctl --getquota --csv` of BeeGFS 7
BEEGFS_7 = "name,id,size,hard,files,hard\nalice,1000,1073741824,2147483648,12345,unlimited\n"
# documented: `beegfs quota list-usage --raw --output ndjson` of BeeGFS 8, by its source
BEEGFS_8 = (
    '{"name":"alice","id":"1000","type":"user","pool":"default","space":"1073741824/2147483648","inode":"12/∞"}\n'
    "INFO: Quota usage information is fetched every 60s from the server nodes, thus the displayed values might be "
    "slightly out of date.\n"
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")

ALICE = Person("alice", 1000, [1000, 2000])


def test_reads_quota_with_a_user_over_the_soft_limit() -> None:
    found = texts.read_quota(QUOTA)

    assert found == Usage(
        Amount(52428804 * KIB, 52428800 * KIB, 57671680 * KIB), Amount(120034, None, 500000), 1790000000
    )
    assert found.space.is_over
    assert not found.files.is_over


@pytest.mark.parametrize("text", [QUOTA_NONE, "", "quota: error while getting quota\n"])
def test_no_line_of_numbers_is_no_quota(text: str) -> None:
    assert texts.read_quota(text) is None


def test_reads_lfs_as_it_is_documented() -> None:
    assert texts.read_lfs(LFS, 0) == Usage(Amount(0, 307200 * KIB, 309200 * KIB), Amount(0, 10000, 11000))


def test_reads_lfs_with_a_long_name_on_a_line_of_its_own() -> None:
    found = texts.read_lfs(LFS_QUIET_WRAPPED, 1000)

    assert found == Usage(
        Amount(1048580 * KIB, 1048576 * KIB, 2097152 * KIB), Amount(13), 1000 + 6 * 86400 + 23 * 3600 + 59 * 60 + 58
    )


def test_a_grace_of_lustre_that_has_run_out_is_now() -> None:
    assert texts.read_lfs(LFS_EXPIRED, 1000).grace == 1000


def test_reads_beegfs_7() -> None:
    assert texts.read_beegfs_ctl(BEEGFS_7) == Usage(Amount(1 << 30, None, 2 << 30), Amount(12345))


def test_reads_beegfs_8() -> None:
    assert texts.read_beegfs(BEEGFS_8) == Usage(Amount(1 << 30, None, 2 << 30), Amount(12))


def test_adds_up_the_pools_of_beegfs_8() -> None:
    other = '{"name":"alice","id":"1000","type":"user","pool":"ssd","space":"1/∞","inode":"?/?"}\n'

    found = texts.read_beegfs(BEEGFS_8 + other)

    # one pool without a limit, so there is none for both
    assert found == Usage(Amount((1 << 30) + 1), Amount(12))


@pytest.mark.parametrize("read", [texts.read_beegfs, texts.read_beegfs_ctl, lambda text: texts.read_lfs(text, 0)])
@pytest.mark.parametrize("text", ["", "Permission denied.", "{broken", "a,b,c"])
def test_anything_else_is_said_and_not_guessed(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(texts.UnreadableError):
        read(text)


# --- asking


class Tools:
    """Programs on the PATH that print what was recorded, and note what they were asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, text: str, status: int = 0) -> None:
        (self._folder / f"{name}.text").write_text(text)
        program = self._folder / name
        script = f'#!/bin/sh\necho "$@" >> {self._folder}/asked\n/bin/cat {self._folder}/{name}.text\nexit {status}\n'
        program.write_text(script)
        program.chmod(0o755)

    def asked(self) -> list[str]:
        return (self._folder / "asked").read_text().splitlines()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sources, "_PATH", str(folder))
    return Tools(folder)


def test_asks_for_the_quota_of_an_export(tools: Tools) -> None:
    tools.add("quota", QUOTA, status=1)

    (row,) = ask(FileSystem("home", "/home", "nfs", "user"), ALICE)

    assert (row.kind, row.who, row.source, row.problem) == ("user", "alice", "quota", "")
    assert row.usage.space.used == 52428804 * KIB
    assert tools.asked() == ["--user --no-wrap --raw-grace --filesystem=/home"]


def test_a_folder_bound_elsewhere_is_asked_for_where_its_file_system_is(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    table = tmp_path / "mountinfo"
    table.write_text(f"22 1 {number} /srv/home /home rw - ext4 /dev/x rw\n23 1 {number} / /srv rw - ext4 /dev/x rw\n")

    assert sources.whole_mount(str(tmp_path), str(table)) == "/srv"
    table.write_text("")
    assert sources.whole_mount(str(tmp_path), str(table)) == str(tmp_path)


def test_what_is_not_mounted_is_said_and_no_other_file_system_is_asked_in_its_place(
    tools: Tools, tmp_path: Path
) -> None:
    tools.add("quota", QUOTA)
    data = FileSystem("data", str(tmp_path), "local", "user", (Project("prof", str(tmp_path)),), mounted=True)

    (row,) = ask(data, ALICE)
    (there, *_) = ask(FileSystem("proc", "/proc", "local", mounted=True), ALICE)

    assert (row.path, row.who, row.problem) == (str(tmp_path), "alice", "it is not mounted here")
    assert (there.kind, there.source, there.problem) == ("whole", "df", "")


def test_what_only_waits_for_its_first_use_is_not_mounted(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    waits = "30 22 0:30 / /by\\040use rw - autofs systemd-1 rw,fd=40\n"
    table.write_text(waits)
    assert not sources.is_mounted("/by use", str(table))

    table.write_text(waits + "31 30 0:31 / /by\\040use rw,noatime shared:9 - nfs4 filer:/vol/1 rw,vers=4.2\n")
    assert sources.is_mounted("/by use", str(table))
    assert not sources.is_mounted("/by", str(table))


def test_says_where_a_quota_is_set_and_nobody_answers(tools: Tools) -> None:
    tools.add("quota", QUOTA_NONE)

    (row,) = ask(FileSystem("home", "/home", "nfs", "user"), ALICE)

    assert row.problem == "no answer about quotas (Disk quotas for user alice (uid 1000): none)"


def test_an_export_without_quotas_is_shown_as_df_does(tools: Tools, tmp_path: Path) -> None:
    tools.add("quota", QUOTA_NONE)

    (row,) = ask(FileSystem("data", str(tmp_path), "nfs"), ALICE)

    assert (row.kind, row.source, row.problem) == ("whole", "df", "")
    assert row.usage.space.hard == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_asks_lustre_for_the_user_and_for_projects_by_their_number(tools: Tools, tmp_path: Path) -> None:
    tools.add("lfs", "42 P /lustre/prof\n" + LFS)
    mine = Project("prof", str(tmp_path))

    rows = ask(FileSystem("lustre", "/lustre", "lustre", projects=(mine,)), Person("root", os.getuid(), os.getgroups()))

    assert [(row.who, row.problem) for row in rows] == [("root", ""), ("prof", "")]
    assert tools.asked() == [
        "quota -q -u root /lustre",
        f"project -d {tmp_path}",
        "quota -q -p 42 /lustre",
    ]


def test_asks_beegfs_by_the_tool_that_is_there(tools: Tools) -> None:
    where = FileSystem("work", "/mnt/beegfs", "beegfs")
    tools.add("beegfs-ctl", BEEGFS_7)
    (old,) = ask(where, ALICE)
    tools.add("beegfs", BEEGFS_8)
    (new,) = ask(where, ALICE)

    assert (old.source, new.source) == ("beegfs-ctl", "beegfs quota")
    assert old.usage.space == new.usage.space
    assert tools.asked() == [
        "--getquota --csv --uid alice --cfgFile=/etc/beegfs/beegfs-client-work.conf",
        "quota list-usage --uids current --raw --output ndjson",
    ]


def test_a_tool_that_is_not_there_is_named(tools: Tools) -> None:
    (row,) = ask(FileSystem("lustre", "/lustre", "lustre"), ALICE)

    assert row.problem == "lfs is not installed"


def test_a_tool_that_fails_has_the_last_word(tools: Tools) -> None:
    tools.add("lfs", "lfs quota: cannot resolve path", status=2)

    (row,) = ask(FileSystem("lustre", "/lustre", "lustre"), ALICE)

    assert row.problem == "lfs: lfs quota: cannot resolve path"


def ceph(values: dict[tuple[str, str], int]) -> sources.Xattr:
    def read(path: str, key: str) -> bytes:
        try:
            return str(values[path, key]).encode()
        except KeyError as error:
            raise OSError(61, "No data available") from error

    return read


def test_ceph_counts_a_folder_against_the_nearest_quota_above(tmp_path: Path) -> None:
    own = tmp_path / "alice"
    own.mkdir()
    values = {
        (str(own), "ceph.dir.rbytes"): 5,
        (str(own), "ceph.dir.rfiles"): 1,
        (str(tmp_path), "ceph.quota.max_bytes"): 100,
        (str(tmp_path), "ceph.dir.rbytes"): 50,
        (str(tmp_path), "ceph.dir.rfiles"): 7,
    }

    answer = sources._ceph(str(own), ceph(values))

    assert answer.usage == Usage(Amount(50, None, 100), Amount(7))


def test_ceph_without_any_quota_has_only_what_is_used(tmp_path: Path) -> None:
    answer = sources._ceph(str(tmp_path), ceph({(str(tmp_path), "ceph.dir.rbytes"): 5}))

    assert answer.usage == Usage(Amount(5), Amount(0))


def test_a_project_without_a_quota_of_its_own_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnansweredError, match="no quota is set on it"):
        sources._statvfs_project(str(tmp_path), str(tmp_path))


def test_only_the_projects_of_a_user_are_shown(tmp_path: Path) -> None:
    for name in ("mine", "group", "others"):
        (tmp_path / name).mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path / "mine", 1000, 3000)
        os.chown(tmp_path / "group", 3000, 2000)
        os.chown(tmp_path / "others", 3000, 3000)
        projects = tuple(Project(path.name, str(path)) for path in sorted(tmp_path.iterdir()))

        rows = ask(FileSystem("project", str(tmp_path), "nfs", "project", projects), ALICE)

        assert [row.who for row in rows] == ["group", "mine"]


def test_a_project_that_may_not_be_looked_at_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_path: str) -> None:
        raise PermissionError

    monkeypatch.setattr(sources, "os", SimpleNamespace(stat=refused, statvfs=refused))

    (row,) = ask(FileSystem("project", "/p", "nfs", "project", (Project("x", "/p/x"),)), ALICE)

    assert row.who == "all users"


# --- all of them, whatever happens


HOME = FileSystem("home", "/home", "nfs")
DEAD = FileSystem("dead", "/dead", "nfs")


def answered(where: FileSystem) -> list[Row]:
    return [Row(where.name, where.path, "user", "alice", "quota", Usage(Amount(1, 2, 3), Amount(4), 5))]


def test_asks_all_and_keeps_their_order() -> None:
    rows = ask_all([HOME, DEAD], answered, 60, "alice")

    assert rows == answered(HOME) + answered(DEAD)


def test_one_that_hangs_is_left_behind_with_the_tools_it_started() -> None:
    def hangs(where: FileSystem) -> list[Row]:
        if where is DEAD:
            command.run(["sh", "-c", "sleep 14.77 & wait"])
        return answered(where)

    rows = ask_all([DEAD, HOME], hangs, 2, "alice")

    assert [row.problem for row in rows] == ["no answer in 2 s", ""]
    left = subprocess.run(["pgrep", "--full", "--exact", "sleep 14.77"], capture_output=True, text=True)
    assert left.stdout == ""


def test_one_that_dies_does_not_take_the_others_along() -> None:
    def dies(where: FileSystem) -> list[Row]:
        if where is DEAD:
            os.kill(os.getpid(), signal.SIGKILL)
        return answered(where)

    rows = ask_all([DEAD, HOME], dies, 60, "alice")

    assert [row.problem for row in rows] == ["the question ended without an answer", ""]


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """A file system of the kernel's that nobody answers for (FUSE without its daemon): every call waits for ever."""
    point = tmp_path / "hung"
    point.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"hung", bytes(point), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"no FUSE here: {os.strerror(ctypes.get_errno())}")
    yield point
    detach = 2
    libc.umount2(bytes(point), detach)
    os.close(device)


@as_root
def test_a_mount_that_really_hangs_costs_its_time_and_nothing_else(hung: Path, tmp_path: Path) -> None:
    config = tmp_path / "diskusage.json"
    file_systems = [
        {"name": "hung", "path": str(hung), "type": "local"},
        {"name": "fine", "path": str(tmp_path), "type": "local"},
    ]
    config.write_text(json.dumps({"schema": 1, "filesystems": file_systems}))
    program = "import sys; from deepopsctl.node_programs.disk_usage.cli import main; sys.exit(main(sys.argv[1:]))"

    done = subprocess.run(
        [sys.executable, "-c", program, "--config", config, "--limit", "3"], capture_output=True, text=True
    )

    assert done.returncode == cli.INCOMPLETE
    assert f"{hung} (root): not known: no answer in 3 s" in done.stdout
    assert f"{tmp_path} (all users)" in done.stdout


# --- the table


def test_the_table_users_see() -> None:
    rows = [
        Row(
            "home",
            "/home",
            "user",
            "alice",
            "quota",
            Usage(Amount(13 * GIB, 45 * GIB, 50 * GIB), Amount(25, None, 500_000)),
        ),
        Row(
            "scratch",
            "/scratch",
            "user",
            "alice",
            "lfs quota",
            Usage(Amount(2 << 40, 1 << 40), Amount(1_500_000), 1_800_000_000),
        ),
        Row(
            "project",
            "/project/prof",
            "project",
            "prof",
            "df",
            Usage(Amount(4096, None, 10 << 40), Amount(2, None, 500_000)),
        ),
        Row("data", "/data", "whole", "all users", "df", Usage(Amount(0, None, 1536 << 40), Amount())),
        Row("dead", "/dead", "user", "alice", problem="no answer in 10 s"),
    ]

    text = render(rows, 1_790_000_000)

    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(1_800_000_000))
    assert text == (
        "                 Description          Space  # of files\n"
        "               /home (alice)  13 GiB/45 GiB     25/500k\n"
        "            /scratch (alice)   2 TiB*/1 TiB      1.5M/-\n"
        "/project/prof (project prof)   4 KiB/10 TiB      2/500k\n"
        "           /data (all users)    0 B/1.5 PiB         -/-\n"
        "\n"
        f"* /scratch (alice): over its limit; nothing more can be written from {when} on\n"
        "/dead (alice): not known: no answer in 10 s\n"
        "(all users): a file system without quotas, as df has it\n"
    )


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (50 * GIB, "50 GiB"),
        (1 << 70, "1024 EiB"),
        (None, "-"),
    ],
)
def test_sizes_are_short(number: int | None, shown: str) -> None:
    assert size(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (999, "999"), (120_034, "120k"), (1_500_000, "1.5M"), (None, "-")]
)
def test_counts_are_short(number: int | None, shown: str) -> None:
    assert count(number) == shown


def test_the_program_speaks_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "diskusage.json"
    config.write_text(json.dumps({"filesystems": [{"name": "here", "path": str(tmp_path), "type": "local"}]}))

    assert cli.main(["--config", str(config), "--json"]) == cli.OK
    found = json.loads(capfd.readouterr().out)

    assert (found["schema"], found["command"], found["ok"]) == (1, "diskusage_report", True)
    assert found["rows"][0]["usage"]["space"]["used"] > 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"filesystems": [{"name": "x"}]}', '{"filesystems": 3}'])
def test_a_file_that_says_nothing_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "diskusage.json").write_text(text)

    with pytest.raises(SettingsError, match=str(tmp_path)):
        load(str(tmp_path / "diskusage.json"))


def test_a_machine_without_storage_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--config", "/nonexistent.json"]) == cli.INVALID
    assert "deploy writes it where storage is mounted" in capfd.readouterr().err


@as_root
def test_nobody_is_asked_about_who_does_not_exist(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "diskusage.json").write_text('{"filesystems": []}')

    assert cli.main(["--config", str(tmp_path / "diskusage.json"), "--user", "nobody-of-that-name"]) == cli.INVALID
