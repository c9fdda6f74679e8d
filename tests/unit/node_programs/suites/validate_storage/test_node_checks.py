"""What a node's own look says of its mounts: the kernel's table against what was declared, and what it tries."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared import mount_table
from deepopsctl.node_programs.suites.validate_storage import inputs, mounts, node_checks, operations

# as a Debian 13 node with NFS, a bind mount, an automount that was triggered and one that was not shows them
TABLE = r"""23 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
97 23 0:45 / /home rw,noatime shared:50 - nfs4 10.0.0.1:/srv/home rw,vers=4.2,rsize=262144,wsize=1048576,hard,proto=tcp,timeo=600,sec=sys,local_lock=none,addr=10.0.0.1
98 23 254:1 /srv/scratch /scratch rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
99 23 0:50 / /first rw,relatime shared:60 - autofs systemd-1 rw,fd=50,pgrp=1,timeout=0,minproto=5,maxproto=5,direct
100 23 0:51 / /second rw,relatime shared:61 - autofs systemd-1 rw,fd=51
101 100 0:46 / /second rw,relatime shared:51 - nfs 10.0.0.2:/data ro,vers=3,acregmin=5,acregmax=5,acdirmin=5,acdirmax=5,nolock,nconnect=4
102 23 0:47 / /fast/with\040blank rw,nosuid shared:52 - tmpfs tmpfs rw,size=16777216k,nr_inodes=1048576,mode=700
103 23 0:48 / /lustre rw shared:53 - lustre 10.0.0.3@tcp:/fs rw,flock
104 23 0:49 / /gluster rw shared:54 - fuse.glusterfs 10.0.0.4:vol rw,user_id=0
"""  # noqa: E501 (as the kernel writes it)
MOUNTED = mount_table.parse(TABLE)


def at(path: str) -> Any:
    result = mount_table.on_top(MOUNTED, path)
    assert result
    return result


class TestTheTable:
    def test_the_upper_mount_counts_and_a_trigger_alone_counts_as_nothing(self) -> None:
        assert at("/second").type == "nfs"
        assert at("/fast/with blank").type == "tmpfs"
        assert mount_table.on_top(MOUNTED, "/first") is mount_table.on_top(MOUNTED, "/nowhere") is None
        # what is written to below an unmounted path
        assert [mounts.below(MOUNTED, path) for path in ("/home/ada", "/data")] == ["/home", "/"]

    @pytest.mark.parametrize("mark", ["\r", "\x0b", "\x85", "\u2028"])
    def test_a_users_own_mount_is_one_line(self, tmp_path: Path, mark: str) -> None:
        table = tmp_path / "mountinfo"
        table.write_text(f"105 23 0:52 / /home/a{mark}b rw - fuse.sshfs me@there: rw\n", newline="")

        assert [mount.path for mount in mount_table.read(str(table))] == [f"/home/a{mark}b"]

    @pytest.mark.parametrize(
        ("path", "fstype", "source"),
        [
            ("/home", "nfs", "10.0.0.1:/srv/home"),
            ("/home", "nfs", "10.0.0.1:/srv/home/"),
            ("/scratch", "none", "/srv/scratch"),
            ("/fast/with blank", "tmpfs", "tmpfs"),
            ("/lustre", "lustre", "10.0.0.3@tcp:/fs"),
            ("/gluster", "glusterfs", "10.0.0.4:/vol"),
        ],
    )
    def test_the_right_one_is_right(self, path: str, fstype: str, source: str) -> None:
        assert mounts.wrong_mount(at(path), fstype, source) is None

    @pytest.mark.parametrize(
        ("path", "source", "measured", "expected"),
        [
            ("/lustre", "10.0.0.3:/fs", "lustre", "nfs"),
            ("/home", "10.0.0.9:/srv/home", "10.0.0.1:/srv/home", "10.0.0.9:/srv/home"),
        ],
    )
    def test_another_type_or_source_is_named(self, path: str, source: str, measured: str, expected: str) -> None:
        wrong = mounts.wrong_mount(at(path), "nfs", source)

        assert wrong
        assert (wrong.measured, wrong.expected) == (measured, expected)


class TestOptions:
    def wrong(self, path: str, *asked: str) -> list[str]:
        return [difference.message for difference in mounts.missing_options(at(path), asked)]

    def test_options_in_force_and_those_that_no_kernel_shows_are_right(self) -> None:
        asked = ("vers=4.2", "vers=4", "noatime", "hard", "rw", "wsize=1048576", "_netdev", "nofail", "bg", "retry=5")

        assert self.wrong("/home", *asked, "x-systemd.automount", "nconnect=1", "user_xattr") == []

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ("ro", "ro was asked for and is not in force"),
            ("noexec", "noexec was asked for and is not in force"),
            ("soft", "soft was asked for and is not in force"),
            ("rsize=1048576", "rsize=1048576 was asked for, rsize=262144 is in force"),
            ("vers=3", "vers=3 was asked for, vers=4.2 is in force"),
            ("nfsvers=3", "nfsvers=3 was asked for, vers=4.2 is in force"),
            ("timeo=100", "timeo=100 was asked for, timeo=600 is in force"),
            (
                "nconnect=8",
                "nconnect=8 was asked for and is not in force: the client shares an earlier connection to that server",
            ),
        ],
    )
    def test_one_that_is_not_in_force_is_named(self, asked: str, message: str) -> None:
        assert self.wrong("/home", asked) == [message]

    def test_the_opposite_and_other_forms_of_what_was_asked_for_are_known(self) -> None:
        assert self.wrong("/second", "rw") == ["rw was asked for, ro is in force"]
        assert self.wrong("/fast/with blank", "suid") == ["suid was asked for, nosuid is in force"]

        # as numbers
        assert self.wrong("/fast/with blank", "size=16G", "nr_inodes=1m", "mode=0700") == []
        # of the node's memory when it was mounted
        assert self.wrong("/fast/with blank", "size=25%") == []
        assert self.wrong("/fast/with blank", "size=8G", "mode=1777") != []
        # one that stands for four
        assert self.wrong("/second", "actimeo=5") == []
        assert len(self.wrong("/second", "actimeo=9")) == 4
        assert self.wrong("/lustre", "localflock") == ["localflock was asked for and is not in force"]


def test_nfs_may_keep_names_and_data_for_a_time_and_others_may_not() -> None:
    assert [mounts.name_bound(at(path)) for path in ("/home", "/second", "/lustre")] == [60, 5, 0]
    # without close-to-open data may be late as well
    assert mounts.data_bound(at("/home")) == 0
    assert mounts.data_bound(at("/home")._replace(options=("nocto", "acregmax=7"))) == 7


def entry(path: Path, **changes: Any) -> Any:
    settings = {"fstype": "nfs", "source": "10.0.0.1:/x", "squash": "root", "shared": True, **changes}
    return inputs.Expected("data", "nfs", str(path), **settings)


def looked(
    entries: Sequence[Any], table: str, *, writes: bool = False, quotas: dict[str, Any] | None = None
) -> tuple[dict[str, Any], Any]:
    with tempfile.NamedTemporaryFile("w", errors="surrogateescape") as file:
        file.write(table)
        file.flush()
        node = node_checks.Node("gpu01", "nobody", 15.0, "abc", quotas or {}, writes=writes, table=file.name)
        result = node.run_checks(entries)
    assert {check["target"] for check in result.checks} <= {"gpu01/data"}
    return {check["name"]: check for check in result.checks}, result.seen


def line(path: Path) -> str:
    return f"97 23 0:45 / {path} rw,noatime - nfs4 10.0.0.1:/x rw,vers=4.2\n"


@pytest.fixture
def open_directory() -> Path:
    """A directory in which everybody may write, as the export of a server may be; pytest closes its own to others."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o1777)
    return made


as_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")


class TestANode:
    def test_what_is_not_mounted_is_reported_with_where_files_go_instead_and_nothing_is_tried(
        self, tmp_path: Path
    ) -> None:
        # a user has mounted something at a path that is not an UTF-8
        users = "105 23 0:52 / /home/a\udce9 rw - fuse.sshfs me@there: rw\n"

        checks, seen = looked([entry(tmp_path)], TABLE + users)

        ((name, check),) = checks.items()
        assert (name, check["status"]) == (node_checks.MOUNTED, "fail")
        assert check["message"] == f"nothing is mounted at {tmp_path}: what is written there goes to /"
        assert seen == {}

    @as_root
    def test_a_good_one_is_handed_on_with_its_promise(self, open_directory: Path) -> None:
        checks, seen = looked([entry(open_directory, options=("noatime",))], line(open_directory))

        good = (node_checks.MOUNTED, node_checks.OPTIONS, node_checks.ANSWERS)
        assert {checks[name]["status"] for name in good} == {"pass"}
        assert seen["data"].name_bound == 60

    @as_root
    @pytest.mark.parametrize(
        ("squash", "status", "words"),
        [
            ("root", "fail", ("take a user's file", "mode 0700")),
            # a server that is not managed, and one where it was asked for
            ("", "warn", ()),
            ("none", "skip", ()),
        ],
    )
    def test_root_that_is_root_on_the_server_fails(
        self, open_directory: Path, squash: str, status: str, words: tuple[str, ...]
    ) -> None:
        """As on any directory of this machine: root is not squashed here."""
        checks, _seen = looked([entry(open_directory, squash=squash)], line(open_directory), writes=True)

        result = checks[node_checks.SQUASH]
        assert result["status"] == status
        assert [word for word in words if word not in result["message"]] == []
        # a node without jobs writes as the user, and leaves nothing
        assert checks["storage-write"]["status"] == "pass"
        assert list(open_directory.iterdir()) == []

    @as_root
    def test_a_directory_that_only_root_may_write_to_is_reported(self, open_directory: Path) -> None:
        open_directory.chmod(0o755)

        checks, _seen = looked([entry(open_directory)], line(open_directory), writes=True)

        assert checks["storage-write"]["status"] == "fail"
        assert str(open_directory) in checks["storage-write"]["message"]
        assert checks[node_checks.SQUASH]["status"] == "skip"

    def test_a_wrong_option_and_a_wrong_source_are_reported_and_tried_all_the_same(self, tmp_path: Path) -> None:
        wanted = entry(tmp_path, source="10.0.0.2:/x", options=("ro",))

        checks, seen = looked([wanted], line(tmp_path))

        assert checks[node_checks.MOUNTED]["measured"] == "10.0.0.1:/x"
        assert checks[node_checks.OPTIONS]["message"] == "ro was asked for and is not in force"
        assert list(seen) == ["data"]

    def test_a_bound_directory_is_compared_with_its_source(self, tmp_path: Path) -> None:
        for name in ("source", "other"):
            (tmp_path / name).mkdir()
        table = f"98 23 254:1 /x {tmp_path}/source rw - ext4 /dev/vda1 rw\n"

        for name, status in (("source", "pass"), ("other", "fail")):
            wanted = entry(tmp_path / "source", fstype="none", source=str(tmp_path / name), options=("ro",))
            assert looked([wanted], table)[0][node_checks.MOUNTED]["status"] == status

    @pytest.mark.parametrize(
        ("report", "status", "measured", "message"),
        [
            ({"differences": [], "problem": ""}, "pass", "in force", ""),
            (
                {"differences": ["/srv: user ada: space 1024 KiB"], "problem": ""},
                *("fail", "others", "/srv: user ada: space 1024 KiB"),
            ),
            ({"differences": [], "problem": "/srv counts no space"}, "fail", "no quotas", "/srv counts no space"),
            (None, "fail", "no quotas", "they could not be compared"),
        ],
    )
    def test_the_server_tells_limits_that_are_not_in_force(
        self, tmp_path: Path, report: dict[str, Any] | None, status: str, measured: str, message: str
    ) -> None:
        wanted = entry(tmp_path, fstype="", quota={"path": "/srv"})

        checks, _seen = looked([wanted], TABLE, quotas={"/srv": report} if report else {})

        quota = checks[node_checks.QUOTA]
        assert (quota["status"], quota["measured"], quota["message"]) == (status, measured, message)

    def test_of_a_server_without_a_mount_of_its_own_only_the_quota_is_reported(self, tmp_path: Path) -> None:
        wanted = entry(tmp_path / "none", fstype="none", quota={"path": "/srv"}, only_quota=True)

        checks, seen = looked([wanted], TABLE, writes=True, quotas={"/srv": {"differences": [], "problem": ""}})

        assert {name: check["status"] for name, check in checks.items()} == {node_checks.QUOTA: "pass"}
        assert seen == {}

    def test_one_that_hangs_costs_its_limit_and_stops_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:

        monkeypatch.setattr(operations, "answers", lambda path: time.sleep(300) if "/one/" in path else {})
        entries = [entry(tmp_path / "one", options=("ro",)), entry(tmp_path / "two", options=("ro",))]
        table = tmp_path / "mountinfo"
        table.write_text("".join(line(tmp_path / name) for name in ("one", "two")))
        node = node_checks.Node("gpu01", "nobody", 3, "abc", {}, writes=False, table=str(table))

        result = node.run_checks([entries[0], entries[1]._replace(name="two")])

        hung = [check for check in result.checks if check["target"] == "gpu01/data" and check["status"] == "fail"]
        assert "no answer within 3 s: the file system hangs" in [check["message"] for check in hung]
        assert list(result.seen) == ["two"]
