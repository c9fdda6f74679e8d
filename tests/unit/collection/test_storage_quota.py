"""Quotas on the machine that serves: which limits, on which file systems, and the kernel's interface."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import node_modules as nodeside
from tests.support.paths import ROOT

kernel = nodeside.load("storage.quota_kernel")
quota = nodeside.load("storage.quota")
HintedError = nodeside.load("node.errors").HintedError
Noted = nodeside.load("node.changes").Noted

DEFAULT, MORE, NONE = [45, 50, 0, 500], [0, 2000, 0, 0], [0, 0, 0, 0]
TABLE = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 254:16 / /srv rw,relatime shared:2 - xfs /dev/vdb rw,attr2,inode64
41 40 254:32 / /srv/home rw,relatime shared:3 - ext4 /dev/mapper/home rw,usrquota
42 22 0:50 / /srv/with\\040blank rw - btrfs /dev/vdc rw
"""


def export(**more: Any) -> dict[str, Any]:
    return {"kind": "user", "grace": 604800, "default": DEFAULT, "users": {}, "projects": [], **more}


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/srv/home/a", "/srv/home"),
        ("/srv/homes", "/srv"),
        ("/srv", "/srv"),
        ("/data", "/"),
        ("/srv/with blank", "/srv/with blank"),
    ],
)
def test_finds_the_file_system_of_a_directory(path: str, point: str) -> None:
    assert quota.file_system_of(path, TABLE).point == point


@pytest.mark.parametrize(
    ("mounted", "path", "point"),
    [
        ("50 40 254:16 /data /srv/data rw,nosuid - xfs /dev/vdb rw", "/srv/data/a", "/srv"),
        ("50 41 254:32 / /srv/home rw,nosuid - ext4 /dev/mapper/home rw", "/srv/home/a", "/srv/home"),
        ("50 22 254:1 /export /export rw,nosuid - ext4 /dev/vda1 rw", "/export/a", "/"),
        # another directory, or another file system
        ("50 40 254:16 /other /srv/data rw,nosuid - xfs /dev/vdb rw", "/srv/data/a", "/srv/data"),
        ("50 40 254:48 /data /srv/data rw,nosuid - xfs /dev/vdc rw", "/srv/data/a", "/srv/data"),
    ],
)
def test_a_directory_that_is_mounted_on_itself_keeps_the_limits_of_its_file_system(
    mounted: str, path: str, point: str
) -> None:
    """Else they would be those of a file system that is gone, and be taken away."""
    assert quota.file_system_of(path, TABLE + mounted + "\n").point == point


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1e", "\x85", "\u2028", "\n"])
def test_a_users_own_mount_is_no_line_more(mark: str) -> None:
    mine = f"99 27 0:77 / /srv/a{mark}b rw,nosuid,nodev shared:9 - fuse.sshfs me@there: rw,user_id=1000\n"

    assert quota.file_system_of("/srv/with blank", mine + TABLE).point == "/srv/with blank"


def where(kind: str) -> Any:
    return quota.FileSystem("/srv", "/dev/vdb", kind)


@pytest.mark.parametrize(
    ("fstype", "state", "words", "hint"),
    [
        ("btrfs", kernel.State(True, True, (0, 0)), "btrfs", "serve it from XFS or ext4"),
        ("xfs", kernel.OFF, "counts no space by project", "a remount is not enough"),
        ("xfs", kernel.State(True, False, (0, 0)), "counts no space by project", "put prjquota into its mount options"),
        ("ext4", kernel.OFF, "counts no space by project", "`tune2fs -O quota,project -Q prjquota /dev/vdb`"),
    ],
)
def test_refuses_file_systems_that_cannot_with_what_to_do(fstype: str, state: Any, words: str, hint: str) -> None:
    with pytest.raises(HintedError, match=words) as refused:
        quota.check(where(fstype), "project", state)

    assert hint in refused.value.hint


def test_limits_that_hold_are_left_and_ext4_that_counts_is_reported_to_let_them_hold() -> None:
    assert quota.check(where("xfs"), "user", kernel.State(True, True, (0, 0))) is False
    assert quota.check(where("ext4"), "user", kernel.State(True, False, (0, 0))) is True


ACCOUNTS = {"root": 0, "daemon": 1, "alice": 1001, "bob": 1002, "nobody": 65534}
PROJECT = export(kind="project", projects=[{"name": "a", "id": 100007, "path": "/srv/a", "limits": MORE}])


@pytest.mark.parametrize(
    ("options", "fstype", "owners", "earlier", "limits"),
    [
        # ext4 has no default: every account of a person and every owner of files gets it
        (export(users={"bob": MORE}), "ext4", [0, 1, 1003, 65534], [], {1001: DEFAULT, 1002: MORE, 1003: DEFAULT}),
        # XFS has one; a user with limits by an earlier deploy has it again
        (export(users={"bob": MORE}), "xfs", [1003], [1001], {0: DEFAULT, 1002: MORE, 1001: NONE}),
        (export(default=NONE), "ext4", [1003], [1001], {1001: NONE}),
        (PROJECT, "ext4", [], [100001], {100007: MORE, 100001: NONE}),
    ],
)
def test_limits_by_number(
    options: dict[str, Any], fstype: str, owners: list[int], earlier: list[int], limits: dict[int, list[int]]
) -> None:
    assert quota.wanted_limits(options, fstype, ACCOUNTS, owners, earlier) == limits


def test_a_user_that_the_node_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(HintedError, match="no account here: carol dave") as refused:
        quota.wanted_limits(export(users={"dave": MORE, "carol": MORE, "1005": MORE}), "ext4", ACCOUNTS, [], [])

    assert "give their numbers" in refused.value.hint


FSTAB = """\
# /srv was on another disk
UUID=1 / ext4 errors=remount-ro 0 1
/dev/vdb\t/srv   ext4\tdefaults,noatime  0 2
"""


def test_a_mount_option_is_added_to_its_line_of_fstab_and_nothing_else_changes() -> None:
    after = quota.fstab_with(FSTAB, "/srv", "usrquota")

    assert after == FSTAB.replace("defaults,noatime", "defaults,noatime,usrquota")
    assert quota.fstab_with(after, "/srv", "usrquota") == after
    assert quota.fstab_with(FSTAB, "/elsewhere", "usrquota") is None
    # options that look like other columns
    assert quota.fstab_with("ext4 /ext4 ext4 ext4 0 0\n", "/ext4", "prjquota") == "ext4 /ext4 ext4 ext4,prjquota 0 0\n"


# --- tables of projects


MINE = [
    {"name": "prof-b", "id": 4242, "path": "/srv/project/rrg/prof-b"},
    {"name": "def-prof", "id": 100005, "path": "/srv/project/def-prof"},
]


def test_lines_of_ours_stand_between_markers_and_go_without_a_trace() -> None:
    theirs = b"# by hand\nold:7\n"
    directories, numbers = quota.tables(MINE)

    after = quota.with_lines(theirs, numbers)

    assert directories == ["100005:/srv/project/def-prof", "4242:/srv/project/rrg/prof-b"]
    assert after == b"# by hand\nold:7\n# BEGIN deepopsctl\ndef-prof:100005\nprof-b:4242\n# END deepopsctl\n"
    assert quota.with_lines(after, numbers) == after
    assert quota.with_lines(after, []) == theirs
    assert quota.with_lines(None, []) == b""


@pytest.mark.parametrize(
    ("line", "result"),
    [(b"def-prof:7\n", ["def-prof:7"]), (b"x:4242\n", ["x:4242"]), (b"prof-b:4242\n", []), (b"#x:4242\n", [])],
)
def test_names_and_numbers_of_others_are_not_taken(line: bytes, result: list[str]) -> None:
    assert quota.table_conflicts(line, MINE) == result


# --- the whole, with a kernel that remembers


class Quotas:
    """Quotas of one type, as a kernel remembers them."""

    def __init__(self) -> None:
        self.known: dict[int, list[int]] = {}
        self.grace, self.enforced = 0, True

    def state(self) -> Any:
        return kernel.State(True, self.enforced, (self.grace, self.grace))

    def enforce(self) -> None:
        self.enforced = True

    def set_grace(self, seconds: int) -> None:
        self.grace = seconds

    def limits(self, number: int) -> list[int]:
        return self.known.get(number, NONE)

    def numbers(self) -> list[int]:
        return sorted(self.known)

    def set_limits(self, number: int, limits: list[int]) -> None:
        self.known[number] = limits


class Server:
    """A machine with an XFS at /srv (below a directory of the test), as one deploy after the other finds it."""

    def __init__(self, root: Path, fstype: str = "xfs") -> None:
        self.root, self.users, self.projects = root, Quotas(), Quotas()
        self.directory = root / "srv/home"
        self.directory.mkdir(parents=True)
        (root / "etc").mkdir()
        table = f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:16 / {root}/srv rw - {fstype} /dev/sdb rw\n"
        self.machine = quota.Host(str(root), self._quotas, table)

    def _quotas(self, _device: str, _point: str, kind: str) -> Quotas:
        return {"user": self.users, "project": self.projects}[kind]

    def named(self) -> Any:
        """What differs from one export."""
        return quota.differences({"path": str(self.directory), **export()}, self.machine)

    def deploy(self, *exports: dict[str, Any], dry: bool = False) -> list[dict[str, str]]:
        noted = Noted(dry)
        quota.converge([{"path": str(self.directory), **each} for each in exports], self.machine, noted)
        changes: list[dict[str, str]] = noted.changes
        return changes


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_a_second_deploy_changes_nothing(server: Server) -> None:
    options = export(users={"1005": MORE})

    first, second = server.deploy(options), server.deploy(options)

    assert [change["detail"] for change in first] == [
        "grace of 168 h",
        "user default: soft 45 KiB, space 50 KiB, files 500",
        "user 1005: space 2000 KiB",
    ]
    assert second == []
    # limits changed by hand are set again
    server.users.known[0] = MORE
    assert [change["detail"] for change in server.deploy(options)] == [
        "user default: soft 45 KiB, space 50 KiB, files 500"
    ]


def test_what_a_deploy_would_still_set_is_named_and_not_set(server: Server) -> None:
    point = f"{server.root}/srv"
    before, reported = server.named(), server.deploy(export(), dry=True)

    assert server.users.known == {}
    assert not list((server.root / "var").glob("**/*"))
    assert before["differences"] == [
        f"{point}: grace of 168 h",
        f"{point}: user default: soft 45 KiB, space 50 KiB, files 500",
    ]
    assert reported == server.deploy(export())
    assert server.named() == {"differences": [], "problem": ""}


def test_what_goes_from_cluster_yml_loses_the_limits_that_came_by_it_and_no_others(server: Server) -> None:
    server.deploy(export(users={"1005": MORE}))
    # by hand
    server.users.known[1007] = MORE

    server.deploy()

    assert server.users.known == {0: NONE, 1005: NONE, 1007: MORE}
    assert server.deploy() == []


def test_ext4_that_only_counts_is_reported_now_and_for_the_next_boot(tmp_path: Path) -> None:
    server = Server(tmp_path, "ext4")
    server.users.enforced = False
    fstab = tmp_path / "etc/fstab"
    fstab.write_text(f"/dev/sdb {tmp_path}/srv ext4 defaults 0 2\n")

    server.deploy(export())

    assert server.users.enforced
    assert fstab.read_text() == f"/dev/sdb {tmp_path}/srv ext4 defaults,usrquota 0 2\n"


def test_all_file_systems_are_looked_at_before_any_is_touched(server: Server) -> None:
    server.machine.table += f"24 22 8:32 / {server.root}/data rw - btrfs /dev/sdc rw\n"
    unfit = export(path=f"{server.root}/data")

    assert "btrfs" in quota.differences(unfit, server.machine)["problem"]
    with pytest.raises(HintedError, match="btrfs"):
        server.deploy(export(), unfit)
    with pytest.raises(HintedError, match=r"are on one file system .* with different limits"):
        server.deploy(export(), export(default=MORE))

    assert server.users.known == {}


def test_projects_wait_for_their_directories(server: Server) -> None:
    project = {**MINE[0], "limits": MORE, "path": f"{server.directory}/b"}
    options = export(kind="project", path=str(server.directory), projects=[project])

    files, waiting = quota.converge([options], server.machine, Noted(dry=False))

    assert list(waiting) == [f"{server.directory}/b"]
    assert server.projects.known == {4242: MORE}
    assert [Path(path).read_text() for path in files] == [
        f"# BEGIN deepopsctl\n4242:{server.directory}/b\n# END deepopsctl\n",
        "# BEGIN deepopsctl\nprof-b:4242\n# END deepopsctl\n",
    ]


def test_limits_of_a_deploy_that_was_cut_off_are_known_to_the_next(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(quota, "assign_projects", nodeside.raising(SystemExit()))
        with pytest.raises(SystemExit):
            server.deploy(export(users={"1005": MORE}))
    assert server.users.known[1005] == MORE

    server.deploy(export())

    assert server.users.known == {0: DEFAULT, 1005: NONE}


def test_directories_that_a_user_has_nested_too_deeply_keep_no_other_project_from_its_limits(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects = [{"name": name, "id": number, "path": f"{server.directory}/{name}", "limits": MORE}
                for number, name in enumerate(("a", "b"), 4242)]  # fmt: skip
    (server.directory / "b").mkdir()
    (server.directory / "a/d/d/d").mkdir(parents=True)
    marked: list[int] = []

    def mark(_handle: int, number: int, *, inherit: bool) -> bool:
        marked.append(number)
        return inherit

    monkeypatch.setattr(kernel, "DEEPEST", 2)
    monkeypatch.setattr(kernel, "has_project", lambda _path, _number: False)
    monkeypatch.setattr(kernel, "set_project", mark)
    options = export(kind="project", path=str(server.directory), projects=projects)

    _files, waiting = quota.converge([options], server.machine, Noted(dry=False))

    deep = f"{server.directory}/a: it has a directory more than 2 levels deep; let its owner look at it"
    assert waiting == {f"{server.directory}/a": deep}
    assert marked == [4243]


def test_a_file_system_without_a_device_is_refused_like_others(server: Server) -> None:
    table = f"24 22 0:50 / {server.directory} rw - tmpfs tmpfs rw\n"
    server.machine = quota.Host(str(server.root), table=server.machine.table + table)

    problem = f"{server.directory} is on tmpfs (tmpfs), which has no quotas that deepopsctl knows"
    assert server.named()["problem"] == problem


def test_a_kernel_that_answers_with_an_error_is_the_problem_of_one_export(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = OSError(errno.ENOENT, "No such file or directory", "/dev/root")
    monkeypatch.setattr(server.users, "state", nodeside.raising(missing))

    assert "/dev/root" in server.named()["problem"]


# --- the kernel


def test_reads_what_the_kernel_answers() -> None:
    raw = bytearray(80)
    struct.pack_into("=H", raw, 2, 1 | 2 | 16)
    struct.pack_into("=2i", raw, 60, 604800, 3600)

    assert kernel.parse_state(bytes(raw), 0) == kernel.State(True, True, (604800, 3600))
    assert kernel.parse_state(bytes(raw), 2) == kernel.State(True, False, (604800, 3600))
    assert kernel.parse_limits(kernel._DQBLK.pack(50, 45, 0, 500, 0, 0, 0, 0, kernel._LIMITS)) == DEFAULT


def run_on(directory: Path, fstype: str, size: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a new file system mounted, in a mount namespace of its own; skips where it can't be mounted."""
    image, point = directory / "image", directory / "point"
    point.mkdir()
    subprocess.run(["truncate", f"--size={size}", image], check=True)
    subprocess.run([f"mkfs.{fstype}", "-q", image], check=True)
    script = 'mount -o loop "$1" "$2" || exit 77; "$3" -c "$4" "$2"'
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script, "bash", image, point, sys.executable, program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode == 77:
        pytest.skip(f"it can't be mounted on a loop device here: {done.stderr.strip()}")
    return done


def test_a_project_is_marked_through_no_link_and_within_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/file").touch()
    (tmp_path / "link").symlink_to("project")
    monkeypatch.setattr(kernel, "set_project", lambda *_handle, **_flags: 1)

    with pytest.raises(NotADirectoryError):
        kernel.assign_project(tmp_path / "link", 77)
    assert kernel.assign_project(tmp_path / "project", 77) == 2
    # what is mounted below has another device
    stat = os.stat
    with monkeypatch.context() as patched:
        patched.setattr(kernel.os, "fstat", lambda handle: SimpleNamespace(st_dev=0, st_mode=stat(handle).st_mode))
        assert kernel.assign_project(tmp_path / "project", 77) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_real_ext4_without_quotas_is_refused(tmp_path: Path) -> None:
    """The whole question, to a real file system on a loop device in a mount namespace of its own."""
    program = (
        "import sys; from tests.support import node_modules as nodeside\n"
        "quota, kernel = nodeside.load('storage.quota'), nodeside.load('storage.quota_kernel')\n"
        "where = quota.file_system_of(sys.argv[1], open('/proc/self/mountinfo').read())\n"
        "try:\n"
        "    quota.check(where, 'user', kernel.Kernel(where.device, where.point, 'user').state())\n"
        "except nodeside.load('node.errors').HintedError as error:\n"
        "    print(error, '|', error.hint)\n"
    )
    done = run_on(tmp_path, "ext4", "32M", program)

    assert f"{tmp_path}/point (ext4 on /dev/loop" in done.stdout, done.stderr
    assert "counts no space by user" in done.stdout
    assert "tune2fs -O quota -Q usrquota /dev/loop" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_directories_become_projects_on_a_real_xfs(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tests.support import node_modules as nodeside\n"
        "kernel = nodeside.load('storage.quota_kernel')\n"
        "root = Path(sys.argv[1]) / 'def-prof'; (root / 'a/b').mkdir(parents=True); (root / 'a/file').touch()\n"
        "os.mkfifo(root / 'pipe'); (root / 'link').symlink_to('/etc/passwd'); (root.parent / 'outside').mkdir()\n"
        "(root / 'out').symlink_to(root.parent / 'outside')\n"
        "def number(path):\n"
        "    handle = os.open(path, os.O_RDONLY)\n"
        "    try: return kernel.of_handle(handle)\n"
        "    finally: os.close(handle)\n"
        "has, assign = kernel.has_project, kernel.assign_project\n"
        "print(has(root, 77), assign(root, 77), has(root, 77), assign(root, 77))\n"
        "(root / 'a/b/new').touch()\n"
        "paths = [root / 'a/file', root / 'a/b', root.parent / 'outside']\n"
        "print(number(root / 'a/b/new')[0], *map(number, paths))\n"
    )
    done = run_on(tmp_path, "xfs", "400M", program)

    assert done.stdout.splitlines() == ["False 4 True 0", "77 (77, False) (77, True) (0, False)"], done.stderr


HEADERS = """
#include <stdio.h>
#include <stddef.h>
#include <linux/quota.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
int main(void) {
  printf("%zu %zu %zu %zu ", sizeof(struct if_dqblk), offsetof(struct if_nextdqblk, dqb_id), sizeof(struct if_dqinfo),
         sizeof(struct fs_quota_stat));
  printf("%zu %zu %zu ", offsetof(struct fs_quota_stat, qs_flags), offsetof(struct fs_quota_stat, qs_btimelimit),
         offsetof(struct if_dqblk, dqb_ihardlimit));
  printf("%u %u %u %u %u %u ", Q_QUOTAON, Q_SETINFO, Q_GETQUOTA, Q_SETQUOTA, Q_GETNEXTQUOTA, Q_XGETQSTAT);
  printf("%u %u %u ", QIF_BLIMITS | QIF_ILIMITS, IIF_BGRACE, IIF_IGRACE);
  printf("%u %u %zu %zu %u\\n", (unsigned)FS_IOC_FSGETXATTR, (unsigned)FS_IOC_FSSETXATTR, sizeof(struct fsxattr),
         offsetof(struct fsxattr, fsx_projid), FS_XFLAG_PROJINHERIT);
}
"""


def test_numbers_are_those_of_the_kernels_headers(tmp_path: Path) -> None:
    source = tmp_path / "numbers.c"
    source.write_text(HEADERS)
    subprocess.run(["gcc", source, "-o", tmp_path / "numbers"], check=True)

    output = subprocess.run([tmp_path / "numbers"], capture_output=True, text=True, check=True).stdout

    names = (
        "_Q_QUOTAON _Q_SETINFO _Q_GETQUOTA _Q_SETQUOTA _Q_GETNEXTQUOTA _Q_XGETQSTAT _LIMITS _BGRACE _IGRACE "
        "_GET_XATTR _SET_XATTR _XATTR_SIZE _PROJECT _INHERIT"
    )
    sizes = [kernel._DQBLK.size, 68, kernel._DQINFO.size, kernel._QSTAT_SIZE, kernel._FLAGS_AT, kernel._GRACES_AT, 24]
    assert [int(word) for word in output.split()] == [*sizes, *(getattr(kernel, name) for name in names.split())]
