"""What runs on a node for its storage: the mount table, changes in use, the node check; and what servers hand out."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deepopsctl.storage.health_check import CONFIG, PROGRAM, node_files, with_health_check
from deepopsctl.storage.node_plan import exports_of, uses_rdma
from deepopsctl.storage.systemd_units import SLURMD_DROP_IN
from tests.data.storage_samples import ADDRESSES, WHOLE, mounts, plan
from tests.support import node_modules as nodeside
from tests.support.paths import ROOT

nfs_exports = nodeside.load("storage.nfs_exports")
node_mounts = nodeside.load("storage.mount_table")
run = nodeside.load("storage.mount")
filters = nodeside.plugin("filter", "storage")
CHECK = ROOT / "roles" / "storage" / "files" / "deepops-nodecheck"
TABLE = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /data rw - autofs systemd-1 rw,fd=40
31 30 0:31 / /data rw,noatime shared:9 - nfs4 filer:/vol/1 rw,vers=4.2
32 22 8:1 /srv/with\040blank /scratch rw shared:1 - ext4 /dev/sda1 rw
33 22 0:30 / /lazy rw - autofs systemd-1 rw,fd=41
"""


def mount(options: str, what: str = "tmpfs", fstype: str = "tmpfs") -> Any:
    return node_mounts.parse_unit(f"# x\n[Mount]\nWhat={what}\nWhere=/a\nType={fstype}\nOptions={options},nofail\n")


class TestTable:
    def test_what_is_on_top_of_a_path_counts_and_what_waits_for_its_first_use_does_not(self) -> None:
        table = node_mounts.parse_table(TABLE)

        assert table["/data"][:4] == ("/data", "/", "filer:/vol/1", "nfs4")
        assert table["/scratch"].root == "/srv/with blank"
        assert "/lazy" not in table
        # the table of this machine can be read
        assert "/" in node_mounts.mounted()

    def test_a_units_own_text_reads_back(self) -> None:
        home = node_mounts.parse_unit(plan("gpu1").mounts[0].text)

        assert home == ("192.0.2.1:/srv/home", "nfs", ["vers=4.2", "nconnect=4", "ro", "nosuid", "nodev"])


class TestChanges:
    @pytest.mark.parametrize(
        ("before", "after", "options"),
        [
            ("rw", "ro", "remount,ro"),
            ("ro,noatime", "noatime", "remount,rw,noatime"),
            ("noatime", "nosuid", "remount,relatime,nosuid"),
            ("size=1G", "size=2G", "remount,size=2G"),
        ],
    )
    def test_the_kernel_also_gets_what_is_no_longer_wanted(self, before: str, after: str, options: str) -> None:
        assert node_mounts.is_live(mount(before), mount(after))
        assert node_mounts.remount_options(mount(before), mount(after)) == options

    @pytest.mark.parametrize("fstype", ["nfs", "lustre", "beegfs", "ceph", "fuse.ceph", "glusterfs", "tmpfs", "xfs"])
    def test_flags_of_a_mount_are_changed_without_asking_its_file_system(self, fstype: str) -> None:
        before = mount("ro,noatime,flock", "a:/x", fstype)
        after = mount("ro,noatime,flock,nosuid,nodev", "a:/x", fstype)
        words = ["-t", fstype, "--internal-only", "-o", "remount,bind,ro,noatime,nosuid,nodev", "a:/x", "/a"]

        assert node_mounts.is_live(before, after)
        assert run.remount_command("/a", before, after) == ["mount", *words]

    def test_what_is_mounted_with_less_than_its_unit_says_is_mounted_again(self) -> None:
        wanted, entry = mount("noatime,nosuid,nodev"), node_mounts.parse_table(TABLE)["/data"]

        assert node_mounts.in_force(wanted, entry).options == ["noatime"]
        assert node_mounts.in_force(wanted, entry._replace(flags=("rw", "nosuid", "nodev"))) == wanted

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (mount("mode=1777"), mount("mode=0755")),
            (mount("size=1G,huge=always"), mount("size=1G")),
            (mount("ro", "a:/x", "nfs"), mount("ro", "b:/x", "nfs")),
            (mount("vers=4.2", "a:/x", "nfs"), mount("vers=4.1", "a:/x", "nfs")),
        ],
    )
    def test_other_options_and_another_source_need_an_unmount(self, before: Any, after: Any) -> None:
        assert not node_mounts.is_live(before, after)

    def test_an_automount_that_gives_up_later_is_another_one(self) -> None:
        text = plan("gpu1").mounts[1].automount
        newer = "# Written by another version of deepopsctl.\n" + text.partition("\n")[2]

        assert node_mounts.waits_for(newer) == node_mounts.waits_for(text)
        assert node_mounts.waits_for(text.replace("=10m", "=20m")) != node_mounts.waits_for(text)
        assert node_mounts.waits_for("") == []

    def test_a_file_and_a_link_are_in_the_way_of_a_mount(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "link").symlink_to("/")

        assert "is not a directory" in node_mounts.conflict_at(str(tmp_path / "file"))
        assert "is a link to /" in node_mounts.conflict_at(str(tmp_path / "link"))
        assert not node_mounts.conflict_at(str(tmp_path))
        assert not node_mounts.conflict_at(str(tmp_path / "new"))

    def test_who_uses_a_directory_is_named(self, tmp_path: Path) -> None:
        with (tmp_path / "open").open("w"):
            assert "(" in node_mounts.users(str(tmp_path))
        assert node_mounts.users(str(tmp_path)) == ""


class TestHealthCheck:
    def test_slurm_has_no_check_where_nothing_is_required(self) -> None:
        free = mounts(WHOLE.replace("required: true", "required: false"))

        assert with_health_check({"ReturnToService": 2}, free) == {"ReturnToService": 2}
        assert node_files(free, "gpu1", {}, "x") == ()

    def test_a_sites_own_program_is_called_by_ours_and_its_interval_kept(self) -> None:
        config = {"healthcheckprogram": "/usr/sbin/nhc", "HEALTHCHECKINTERVAL": 300}
        files = {file.path: file.content for file in node_files(mounts(), "gpu1", config, "program")}

        assert with_health_check(config, mounts()) == {
            "HEALTHCHECKINTERVAL": 300,
            "HealthCheckProgram": PROGRAM,
        }
        assert '"program": "/usr/sbin/nhc"' in files[CONFIG]
        assert files[PROGRAM] == "program"

    def test_every_compute_node_has_the_program_and_waits_only_for_its_own(self) -> None:
        narrowed = mounts(WHOLE.replace("path: /home,", "path: /home, nodes: gpu1,"))

        assert {file.path for file in node_files(narrowed, "gpu1", {}, "")} == {CONFIG, PROGRAM, SLURMD_DROP_IN}
        assert {file.path for file in node_files(narrowed, "gpu2", {}, "")} == {CONFIG, PROGRAM}

    @pytest.fixture
    def check(self) -> Any:
        loader = SourceFileLoader("nodecheck_program", str(CHECK))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module

    def test_a_sites_program_that_leads_back_to_it_ends(self, tmp_path: Path) -> None:
        link, config = tmp_path / "link", tmp_path / "nodecheck.json"
        program = tmp_path / "check"
        program.write_text(CHECK.read_text().replace(CONFIG, str(config)).replace("/run/", f"{tmp_path}/"))
        program.chmod(0o755)
        link.symlink_to(program)
        config.write_text(json.dumps({"node": "gpu1", "mounts": [], "program": str(link)}))

        done = subprocess.run([program], capture_output=True, text=True, timeout=30)

        assert (done.returncode, "leads back to this program" in done.stderr) == (1, True)

    def test_the_program_knows_what_is_mounted(self, check: Any, tmp_path: Path) -> None:
        assert check.is_mounted("/proc")
        assert not check.is_mounted(str(tmp_path))
        assert check.answers("/proc")
        assert not check.answers(str(tmp_path / "gone"))

    def test_a_users_mount_at_a_path_with_a_carriage_return_hides_no_other(
        self, check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = tmp_path / "mountinfo"
        users = b"40 30 0:50 / /home/u/a\rb rw,nosuid - fuse.sshfs u@h: rw\n"
        table.write_bytes(users + b"31 30 0:31 / /data rw,noatime shared:9 - nfs4 filer:/vol/1 rw\n")
        monkeypatch.setattr(check, "TABLE", str(table))

        assert check.is_mounted("/data")
        assert not check.is_mounted("/home")

    def test_a_server_that_is_silent_once_is_forgiven(self, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = {"name": "home", "path": "/proc", "unit": "proc.mount"}
        monkeypatch.setattr(check, "answers", lambda path: False)
        silent: set[str] = set()

        assert [check.fault(entry, silent) for _ in range(2)] == [
            "",
            "deepopsctl: storage home does not answer at /proc",
        ]

        monkeypatch.setattr(check, "answers", lambda path: True)
        assert check.fault(entry, silent) == ""
        assert silent == set()

    @pytest.mark.parametrize(
        ("reason", "own"),
        [
            ("deepopsctl: storage home is not mounted at /home", True),
            ("deepopsctl: storage home does not answer at /home and 1 more", True),
            ("deepopsctl: node replace", False),
            ("deepopsctl: its storage; deploy ends this", False),
            ("disk is dying", False),
        ],
    )
    def test_the_program_ends_no_drain_but_its_own(self, check: Any, reason: str, own: bool) -> None:
        line = f"NodeName=gpu1 State=IDLE+DRAIN ThreadsPerCore=1 Reason={reason} [root@2026-11-22T07:00:00] X=1\n"

        assert check.STATE.search(line)[1] == "IDLE+DRAIN"
        assert bool(check.OURS.match(check.REASON.search(line)[1])) is own


class TestServing:
    def test_what_two_entries_mount_is_exported_once_to_all_of_them(self) -> None:
        text = WHOLE.replace("path: /home,", "path: /home, nodes: gpu1,") + (
            '  - {name: again, type: nfs, source: "ctl1:/srv/home", path: /again, nodes: "gpu1,gpu2"}\n'
        )

        (export,) = exports_of(mounts(text), "ctl1", ADDRESSES)

        assert export.line.count("192.0.2.11(") == 1
        assert export.line.split(" ")[2].startswith("gpu2(")

    @pytest.mark.parametrize(
        ("nfs", "rules"),
        [
            ("squash: none", "rw,sync,no_subtree_check,no_root_squash"),
            ("squash: all, read_only: true", "ro,sync,no_subtree_check,all_squash"),
        ],
    )
    def test_root_is_nobody_unless_that_is_asked_for(self, nfs: str, rules: str) -> None:
        (export,) = exports_of(mounts(WHOLE.replace("nconnect: 4", f"{nfs}, clients: [192.0.2.0/24]")), "ctl1", {})

        assert export.line == f"/srv/home 192.0.2.0/24({rules})"

    def test_nothing_is_ever_exported_to_everybody(self) -> None:
        (export,) = exports_of(mounts(), "ctl1", {})

        assert "*" not in export.line
        assert " (" not in export.line

    def test_nobody_loses_an_export_before_it_is_unmounted(self) -> None:
        before = nfs_exports.lines_of("# ours\n/a 192.0.2.1(rw) 192.0.2.2(rw)\n/b 192.0.2.1(rw)\n")
        wanted = {"/a": "/a 192.0.2.2(ro) 192.0.2.3(ro)"}

        assert nfs_exports.closing(before, wanted) == {
            "/a": "/a 192.0.2.2(ro) 192.0.2.3(ro) 192.0.2.1(rw)",
            "/b": "/b 192.0.2.1(rw)",
        }
        assert nfs_exports.closing(wanted, wanted) == {}

    def test_what_the_server_has_is_compared_by_addresses(self) -> None:
        shown = "/a  192.0.2.0/24(sync,wdelay,hide)\n/a  2001:db8::1(sync)\n"

        assert nfs_exports.has_all(shown, {"/a": "/a 192.0.2.0/24(rw) 2001:db8:0::1(rw) gpu1(rw)"})
        assert not nfs_exports.has_all(shown, {"/a": "/a 192.0.2.9(rw)"})
        assert not nfs_exports.has_all("", {"/b": "/b 192.0.2.0/24(rw)"})

    def test_an_export_stays_for_nodes_that_did_not_confirm(self) -> None:
        hosts = {
            "clean": {"group_names": ["deepops_storage_done"]},
            "told": {"group_names": [], "storage_result": {"deferred": []}},
            "busy": {"group_names": [], "storage_result": {"deferred": ["home"]}},
            "failed": {"group_names": [], "storage_result": {"deferred": [], "failed": True}},
            # its gate was another component's
            "away": {"group_names": [], "drift_check_result": {"clean": True}},
        }

        assert filters.storage_unconfirmed(list(hosts), hosts) == ["busy", "failed", "away"]

    def test_what_a_node_has_mounted_by_hand_is_handed_on_with_its_address(self) -> None:
        stray = {"path": "/mnt", "export": "/a", "server": "192.0.2.1", "client": ""}
        hosts: dict[str, Any] = {
            "old": {"storage_result": {"unmanaged_mounts": [stray]}},
            "new": {"storage_result": {"unmanaged_mounts": [{**stray, "client": "10.2.0.5"}]}},
            "away": {},
            "skipped": {"storage_result": {"skipped": True}},
        }

        assert filters.storage_unmanaged_mounts(list(hosts), hosts, {"old": "192.0.2.5"}) == [
            {**stray, "node": "old", "client": "192.0.2.5"},
            {**stray, "node": "new", "client": "10.2.0.5"},
        ]

    def test_the_server_listens_on_rdma_where_a_mount_wants_it(self) -> None:
        assert uses_rdma(mounts(WHOLE.replace("nconnect: 4", "rdma: true")), "ctl1")
        assert not uses_rdma(mounts(), "ctl1")
        assert filters.storage_rdma([], "ctl1") is False
        assert filters.storage_exports([], "ctl1", {}) == []


# as Linux 6.12 writes it; one by IPv6, and one that was never confirmed to have an address
INFO = """clientid: 0x22d7004e65f1b8d3
address: "%s"
status: confirmed
courtesy client: no
seconds from last renew: 15
name: "Linux NFSv4.2 pc"
minor version: 2
callback state: UP
callback address: 192.0.2.200:0
"""


class TestHolders:
    """Who is warned of when an export is narrowed or goes."""

    BEFORE: ClassVar = {"/a": "/a 192.0.2.0/24(rw) 2001:db8::/64(rw)", "/b": "/b 192.0.2.9(rw)"}

    def losing(self, wanted: dict[str, str], *holders: Any) -> list[tuple[str, str]]:
        result = nfs_exports.losing(self.BEFORE, wanted, holders)
        return [(directory, holder.who) for directory in result for holder in result[directory]]

    def client(self, address: str, export: str = "") -> Any:
        return nfs_exports.Holder(address, address, export, "")

    def test_the_kernels_clients_are_known_by_their_addresses(self, tmp_path: Path) -> None:
        for number, address in enumerate(("192.0.2.9:837", "[2001:db8::9]:665", "192.0.2.9:838")):
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "info").write_text(INFO % address)
        (tmp_path / "7").mkdir()

        assert nfs_exports.of_kernel(str(tmp_path)) == [self.client("192.0.2.9"), self.client("2001:db8::9")]
        assert nfs_exports.of_kernel(str(tmp_path / "none")) == []

    def test_mountds_list_says_what_they_mounted_as_long_as_they_have_it(self, tmp_path: Path) -> None:
        table = tmp_path / "rmtab"
        table.write_text("192.0.2.9:/a/sub:0x00000001\n192.0.2.8:/a:0x00000000\n2001:db8::9:/b:0x00000002\n?\n")

        assert nfs_exports.of_mountd(str(table)) == [
            self.client("192.0.2.9", "/a/sub"),
            self.client("2001:db8::9", "/b"),
        ]
        assert nfs_exports.of_mountd(str(tmp_path / "none")) == []

    def test_who_is_let_in_no_more_loses_it(self) -> None:
        addresses = ("192.0.2.8", "192.0.2.9", "192.0.2.10", "2001:db8::9", "10.0.0.1")
        clients = [self.client(address) for address in addresses]
        narrowed = {"/a": "/a 192.0.2.8/31(ro)", "/b": "/b 192.0.2.9(ro)"}

        assert self.losing(narrowed, *clients) == [("/a", "192.0.2.10"), ("/a", "2001:db8::9")]
        assert self.losing({}, clients[1]) == [("/a", "192.0.2.9"), ("/b", "192.0.2.9")]
        assert self.losing(self.BEFORE, *clients) == []

    def test_who_is_known_to_have_another_directory_loses_nothing(self) -> None:
        others = self.client("192.0.2.9", "/ab"), self.client("192.0.2.9", "/c")

        assert self.losing({}, *others) == []
        assert self.losing({}, *others, self.client("192.0.2.9", "/a/sub")) == [("/a", "192.0.2.9")]

    def test_a_node_that_mounted_it_by_hand_is_reported_with_where(self) -> None:
        table = (
            "31 22 0:31 / /data rw - nfs4 192.0.2.1:/a rw,vers=4.2,clientaddr=192.0.2.9,addr=192.0.2.1\n"
            "32 31 0:32 / /data/sub rw - nfs4 192.0.2.1:/a/sub rw,clientaddr=192.0.2.9,addr=192.0.2.1\n"
            "33 22 0:31 /x /mnt/by\\040hand rw - nfs4 [2001:db8::1]:/a rw,clientaddr=192.0.2.9,addr=192.0.2.1\n"
            "34 22 0:33 / /datas rw - nfs filer:/a rw,vers=3,addr=192.0.2.7,mountaddr=192.0.2.7\n"
            "35 22 8:1 / /mnt rw - ext4 /dev/sda1 rw\n"
        )

        strays = node_mounts.unmanaged_nfs_mounts(table, ["/data"])

        assert strays == [
            {"path": "/mnt/by hand", "export": "/a", "server": "192.0.2.1", "client": "192.0.2.9"},
            {"path": "/datas", "export": "/a", "server": "192.0.2.7", "client": ""},
        ]
        (holder,) = nfs_exports.of_nodes([{**stray, "node": "gpu1"} for stray in strays], ["192.0.2.1"])
        assert self.losing({}, holder) == [("/a", "gpu1")]
        assert nfs_exports.sentence("/a", holder) == (
            "/a is no longer for gpu1: gpu1 has it mounted at /mnt/by hand, not by deepopsctl; "
            "what is not unmounted there fails, and can hang its shutdown"
        )
