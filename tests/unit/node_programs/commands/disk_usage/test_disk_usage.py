"""`diskusage_report`: what quota tools print, read; file systems that fail or hang, and the table.

Outputs marked *documented* are put together from manuals and sources, as these file systems are not here.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepopsctl.node_programs._shared import command
from deepopsctl.node_programs._shared.settings import SettingsError
from deepopsctl.node_programs.commands.disk_usage import cli, sources, texts
from deepopsctl.node_programs.commands.disk_usage.apart import ask_all
from deepopsctl.node_programs.commands.disk_usage.rows import Amount, FileSystem, Person, Project, Row, Usage, load
from deepopsctl.node_programs.commands.disk_usage.sources import UnansweredError, ask
from deepopsctl.node_programs.commands.disk_usage.table import count, render, size
from tests.support.files import write_program

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

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts, and gives files to others")

ALICE = Person("alice", 1000, [1000, 2000])


BEEGFS_8_SSD = '{"name":"alice","id":"1000","type":"user","pool":"ssd","space":"1/∞","inode":"?/?"}\n'
SIX_DAYS = 6 * 86400 + 23 * 3600 + 59 * 60 + 58


def lfs(text: str) -> Usage:
    return texts.read_lfs(text, 1000)


@pytest.mark.parametrize(
    ("read", "text", "space", "files", "grace"),
    [
        (texts.read_quota, QUOTA, (52428804, 52428800, 57671680), (120034, None, 500000), 1790000000),
        (lfs, LFS, (0, 307200, 309200), (0, 10000, 11000), None),
        # a long name is on a line of its own
        (lfs, LFS_QUIET_WRAPPED, (1048580, 1048576, 2097152), (13,), 1000 + SIX_DAYS),
        # a grace that has run out is now
        (lfs, LFS_EXPIRED, (309200, 307200, 309200), (5, 10000, 11000), 1000),
        (texts.read_beegfs_ctl, BEEGFS_7, (1 << 20, None, 2 << 20), (12345,), None),
        (texts.read_beegfs, BEEGFS_8, (1 << 20, None, 2 << 20), (12,), None),
        # one pool without a limit, so there is none for both
        (texts.read_beegfs, BEEGFS_8 + BEEGFS_8_SSD, ((1 << 20) + 1 / KIB,), (12,), None),
    ],
)
def test_usage_is_read_as_each_tool_prints_it(
    read: Callable[[str], Usage],
    text: str,
    space: tuple[float | None, ...],
    files: tuple[int | None, ...],
    grace: int | None,
) -> None:
    in_bytes = [None if value is None else int(value * KIB) for value in space]

    result = read(text)

    assert result == Usage(Amount(*in_bytes), Amount(*files), *([] if grace is None else [grace]))
    assert result.space.is_over is (text in (QUOTA, LFS_QUIET_WRAPPED, LFS_EXPIRED))
    assert not result.files.is_over


@pytest.mark.parametrize("read", [texts.read_beegfs, texts.read_beegfs_ctl, lfs])
@pytest.mark.parametrize("text", ["", "Permission denied.", "{broken", "a,b,c"])
def test_anything_else_is_reported_and_not_guessed(read: Callable[[str], Usage], text: str) -> None:
    with pytest.raises(texts.UnreadableError):
        read(text)


# --- asking


class Tools:
    """Programs on the PATH that print what was recorded, and note what they were asked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, name: str, text: str, status: int = 0) -> None:
        (self._directory / f"{name}.text").write_text(text)
        script = f'echo "$@" >> {self._directory}/asked\n/bin/cat {self._directory}/{name}.text\nexit {status}'
        write_program(self._directory / name, script)

    def asked(self) -> list[str]:
        return (self._directory / "asked").read_text().splitlines()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setattr(sources, "_PATH", str(directory))
    return Tools(directory)


def test_asks_for_the_quota_of_an_export(tools: Tools) -> None:
    tools.add("quota", QUOTA, status=1)

    (row,) = ask(FileSystem("home", "/home", "nfs", "user"), ALICE)

    assert (row.kind, row.who, row.source, row.problem) == ("user", "alice", "quota", "")
    assert row.usage.space.used == 52428804 * KIB
    assert tools.asked() == ["--user --no-wrap --raw-grace --filesystem=/home"]


def test_a_directory_bound_elsewhere_is_asked_for_where_its_file_system_is(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    table = tmp_path / "mountinfo"
    table.write_text(f"22 1 {number} /srv/home /home rw - ext4 /dev/x rw\n23 1 {number} / /srv rw - ext4 /dev/x rw\n")

    assert sources.whole_mount(str(tmp_path), str(table)) == "/srv"
    table.write_text("")
    assert sources.whole_mount(str(tmp_path), str(table)) == str(tmp_path)


def test_what_is_not_mounted_is_reported_and_no_other_file_system_is_asked_in_its_place(
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


@pytest.mark.parametrize(
    ("fstype", "tool", "text", "status", "problem"),
    [
        ("nfs", "quota", QUOTA_NONE, 0, "no answer about quotas (Disk quotas for user alice (uid 1000): none)"),
        ("lustre", "quota", "", 0, "lfs is not installed"),
        ("lustre", "lfs", "lfs quota: cannot resolve path", 2, "lfs: lfs quota: cannot resolve path"),
    ],
)
def test_a_tool_without_an_answer_is_named(
    tools: Tools, fstype: str, tool: str, text: str, status: int, problem: str
) -> None:
    tools.add(tool, text, status)

    (row,) = ask(FileSystem("home", "/home", fstype, "user"), ALICE)

    assert row.problem == problem


def test_an_export_without_quotas_is_shown_as_df_does(tools: Tools, tmp_path: Path) -> None:
    tools.add("quota", QUOTA_NONE)

    (row,) = ask(FileSystem("data", str(tmp_path), "nfs"), ALICE)

    assert (row.kind, row.source, row.problem) == ("whole", "df", "")
    assert row.usage.space.hard == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_asks_lustre_for_the_user_and_for_projects_by_their_number(tools: Tools, tmp_path: Path) -> None:
    tools.add("lfs", "42 P /lustre/prof\n" + LFS)
    where = FileSystem("lustre", "/lustre", "lustre", projects=(Project("prof", str(tmp_path)),))
    root = Person("root", os.getuid(), os.getgroups())

    rows = ask(where, root)

    assert [(row.who, row.problem) for row in rows] == [("root", ""), ("prof", "")]
    assert tools.asked() == ["quota -q -u root /lustre", f"project -d {tmp_path}", "quota -q -p 42 /lustre"]
    # 0 is that of all files without a project
    tools.add("lfs", "0 - /lustre/prof\n" + LFS)
    assert ask(where, root)[1].problem == "no quota is set on it"


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


def ceph(values: dict[str, dict[str, int]]) -> sources.Xattr:
    def read(path: str, key: str) -> bytes:
        try:
            return str(values[path][key]).encode()
        except KeyError as error:
            raise OSError(61, "No data available") from error

    return read


def test_ceph_counts_a_directory_against_the_nearest_quota_above(tmp_path: Path) -> None:
    own = tmp_path / "alice"
    own.mkdir()
    inner = {"ceph.dir.rbytes": 5, "ceph.dir.rfiles": 1}
    outer = {"ceph.quota.max_bytes": 100, "ceph.dir.rbytes": 50, "ceph.dir.rfiles": 7}

    answer = sources._ceph(str(own), ceph({str(own): inner, str(tmp_path): outer}))

    assert answer.usage == Usage(Amount(50, None, 100), Amount(7))
    # without any quota
    answer = sources._ceph(str(tmp_path), ceph({str(tmp_path): {"ceph.dir.rbytes": 5}}))
    assert answer.usage == Usage(Amount(5), Amount(0))
    with pytest.raises(UnansweredError, match="no quota is set on it"):
        sources._statvfs_project(str(tmp_path), str(tmp_path))


@as_root
def test_only_the_projects_of_a_user_are_shown(tmp_path: Path) -> None:
    for name, uid, gid in (("group", 3000, 2000), ("mine", 1000, 3000), ("others", 3000, 3000)):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, uid, gid)
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
    """A file system of the kernel's that no daemon answers for (FUSE without its daemon): every call waits for ever."""
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
    file_systems = [{"name": path.name, "path": str(path), "type": "local"} for path in (hung, tmp_path)]
    config.write_text(json.dumps({"schema": 1, "filesystems": file_systems}))
    program = (
        "import sys; from deepopsctl.node_programs.commands.disk_usage.cli import main; sys.exit(main(sys.argv[1:]))"
    )

    argv = [sys.executable, "-c", program, "--config", str(config), "--limit", "3"]
    done = subprocess.run(argv, capture_output=True, text=True)

    assert done.returncode == cli.INCOMPLETE
    assert f"{hung} (root): not known: no answer in 3 s" in done.stdout
    assert f"{tmp_path} (all users)" in done.stdout


# --- the table


def test_the_table_users_see() -> None:
    home = Usage(Amount(13 * GIB, 45 * GIB, 50 * GIB), Amount(25, None, 500_000))
    scratch = Usage(Amount(2 << 40, 1 << 40), Amount(1_500_000), 1_800_000_000)
    project = Usage(Amount(4096, None, 10 << 40), Amount(2, None, 500_000))
    rows = [
        Row("home", "/home", "user", "alice", "quota", home),
        Row("scratch", "/scratch", "user", "alice", "lfs quota", scratch),
        Row("project", "/project/prof", "project", "prof", "df", project),
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


def test_sizes_and_counts_are_short() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 50 * GIB: "50 GiB", 1 << 70: "1024 EiB"}
    counts = {0: "0", 999: "999", 120_034: "120k", 1_500_000: "1.5M"}

    assert {number: size(number) for number in sizes} == sizes
    assert {number: count(number) for number in counts} == counts
    assert size(None) == count(None) == "-"


def test_the_program_speaks_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "diskusage.json"
    config.write_text(json.dumps({"filesystems": [{"name": "here", "path": str(tmp_path), "type": "local"}]}))

    assert cli.main(["--config", str(config), "--json"]) == cli.OK
    result = json.loads(capfd.readouterr().out)

    assert (result["schema"], result["command"], result["ok"]) == (1, "diskusage_report", True)
    assert result["rows"][0]["usage"]["space"]["used"] > 0


@pytest.mark.parametrize("text", ["{", '{"filesystems": [{"name": "x"}]}', '{"filesystems": 3}'])
def test_a_file_that_says_nothing_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "diskusage.json").write_text(text)

    with pytest.raises(SettingsError, match=str(tmp_path)):
        load(str(tmp_path / "diskusage.json"))


def test_a_node_without_storage_and_a_user_who_does_not_exist_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--config", "/nonexistent.json"]) == cli.INVALID
    assert "deploy writes it where storage is mounted" in capfd.readouterr().err
    (tmp_path / "diskusage.json").write_text('{"filesystems": []}')
    config = str(tmp_path / "diskusage.json")
    assert cli.main(["--config", config, "--user", "nobody-of-that-name"]) == cli.INVALID
