"""What `node_doctor` sees: files as real machines have them, and this machine's own locks and sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import packages_query
from deepopsctl.node_programs.operations.node_doctor import host, main, network, packages, query, services, storage
from tests.support.files import write_files

AUDIT = """\
The following packages have been unpacked but not yet configured.
They must be configured using dpkg --configure or the configure
menu option in dselect for them to work:
 half                 x
 libhalf1:amd64       shared library with a longer description

The following packages are missing the md5sums control file in the
database, they need to be reinstalled:
 odd                  y

"""


def device(directory: Path, address: str, **values: str) -> None:
    write_files(directory / address, {name: f"{value}\n" for name, value in values.items()})


class TestGpus:
    def test_only_nvidias_display_controllers_count(self, tmp_path: Path) -> None:
        h100 = {"vendor": "0x10de", "device": "0x2330"}
        device(tmp_path, "0000:18:00.0", **{"class": "0x030200"}, **h100)
        device(tmp_path, "0000:2a:00.0", **{"class": "0x030000"}, **h100)
        device(tmp_path, "0000:2a:00.1", **{"class": "0x040300"}, **h100)
        device(tmp_path, "0000:03:00.0", **{"class": "0x030000"}, vendor="0x1a03", device="0x2000")
        device(tmp_path, "0000:05:00.0", **{"class": "0x068000"}, vendor="0x10de", device="0x22a3")

        assert host.gpus(str(tmp_path))["bus"] == ["0x2330", "0x2330"]
        assert host.gpus(str(tmp_path / "none"))["bus"] == []

    def test_the_modules_of_a_deploy_and_whether_they_run(self, tmp_path: Path) -> None:
        modules = {"deepopsctl-nvidia": "# ours\nnvidia\nnvidia-uvm", "deepopsctl-gdrdrv": "gdrdrv", "others": "fuse"}
        directory = tmp_path / "etc/modules-load.d"
        write_files(directory, {f"{name}.conf": f"{text}\n" for name, text in modules.items()})
        for name in ("nvidia", "nvidia_uvm"):
            (tmp_path / "sys/module" / name).mkdir(parents=True)

        result = host.boot_modules(str(tmp_path))

        assert result == {"gdrdrv": False, "nvidia": True, "nvidia-uvm": True}


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /home rw,nosuid,nodev - nfs4 filer:/home rw,vers=4.2
31 22 0:31 / /scratch rw,nosuid - nfs4 filer:/scratch rw,vers=4.2
32 22 0:32 / /gpfs rw - gpfs fs1 rw
33 22 0:33 / /covered rw - lustre a@tcp:/x rw
34 33 0:34 / /covered rw,nosuid,nodev - lustre a@tcp:/x rw
35 22 0:35 / /tmp rw - tmpfs tmpfs rw
36 22 8:1 /srv/home /srv/home rw,nosuid,nodev shared:1 - ext4 /dev/sda1 rw
"""
EXPORTED = """\
/srv/home\t192.0.2.0/24(rw,sync,wdelay,root_squash)
/srv/with\\040blank\t192.0.2.0/24(rw,sync,wdelay,root_squash)
/srv/mirror\t192.0.2.0/24(ro,sync,wdelay,root_squash)
"""


class TestStorage:
    def test_shared_directories_that_give_rights_are_named_whoever_mounted_them(self, tmp_path: Path) -> None:
        write_files(tmp_path, {"mountinfo": MOUNTS, "etab": EXPORTED})
        table = str(tmp_path / "mountinfo")

        assert storage.rights(table, str(tmp_path / "etab")) == [
            {"path": "/gpfs", "type": "gpfs", "served": False, "lacks": ["nosuid", "nodev"]},
            {"path": "/scratch", "type": "nfs4", "served": False, "lacks": ["nodev"]},
            {"path": "/srv/with blank", "type": "ext4", "served": True, "lacks": ["nosuid", "nodev"]},
        ]
        assert len(storage.rights(table, str(tmp_path / "none"))) == 2


class TestSecureBoot:
    @pytest.mark.parametrize(
        ("data", "state"),
        [(b"\x06\0\0\0\x01", "on"), (b"\x06\0\0\0\0", "off"), (b"\x06\0\0\0", "off"), (None, "unknown")],
    )
    def test_the_fifth_byte_says_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None, state: str
    ) -> None:
        if data:
            (tmp_path / "variable").write_bytes(data)
        monkeypatch.setattr(host, "EFI", str(tmp_path))
        monkeypatch.setattr(host, "SECURE_BOOT", str(tmp_path / "variable"))

        assert host.secure_boot() == state


class TestPackages:
    def test_every_package_that_dpkg_complains_of_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packages_query, "_output", lambda *argv: AUDIT)

        assert packages_query.broken() == ["half", "libhalf1:amd64", "odd"]

    def test_a_lock_is_seen_with_its_holder_and_is_not_taken(self, tmp_path: Path) -> None:
        lock = tmp_path / "lock"
        hold = f"import fcntl; f = open('{lock}', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
        argv = [sys.executable, "-c", hold]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            result = packages.first_lock([str(tmp_path / "none"), str(lock)])
            process.communicate("\n")

        assert result
        assert (result["pid"], result["path"]) == (process.pid, str(lock))
        assert result["command"].startswith("python")
        assert packages.first_lock([str(lock)]) is None


class TestServices:
    def test_who_listens_is_found_by_the_socket(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            (result,) = services.listeners([port], services.processes())
            # of a user whose processes are hidden
            (hidden,) = services.listeners([port], {})

        assert (result["port"], result["pid"]) == (port, os.getpid())
        assert result["command"]
        assert (hidden["pid"], hidden["command"]) == (0, "")
        assert services.listeners([port], services.processes()) == []


class TestNames:
    def test_only_what_differs_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known = {"ctl1": ["192.0.2.1"], "gpu01": ["192.0.2.9"]}
        monkeypatch.setattr(network, "resolve", lambda name: known.get(name, []))

        result = network.names({"ctl1": "192.0.2.1", "gpu01": "192.0.2.11", "gpu02": "192.0.2.12"}, seconds=60)

        assert (result["asked"], result["silent"]) == (3, [])
        assert result["otherwise"] == {"gpu01": ["192.0.2.9"]}
        assert result["unresolved"] == ["gpu02"]

    def test_a_node_that_lists_all_asks_no_resolver(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It reads the whole of /etc/hosts for each name: seconds of CPU on each of 5,000 nodes."""
        hosts, switch = tmp_path / "hosts", tmp_path / "nsswitch.conf"
        hosts.write_text("10.0.0.1 ctl1 # the head\n10.0.0.9 gpu01\n10.0.0.2 two\n10.0.0.3 two\n010.1 odd\n")
        switch.write_text("passwd: files\nhosts: files dns\n")
        asked: list[str] = []
        listed = network.in_hosts(str(hosts), str(switch))
        monkeypatch.setattr(network, "in_hosts", lambda: listed)

        def resolve(name: str) -> list[str]:
            asked.append(name)
            return []

        monkeypatch.setattr(network, "resolve", resolve)

        result = network.names(dict.fromkeys(("ctl1", "gpu01", "two", "odd"), "10.0.0.1"), seconds=60)

        assert asked == ["two", "odd"]
        assert result["otherwise"] == {"gpu01": ["10.0.0.9"]}

    def test_a_resolver_that_asks_others_first_is_asked(self, tmp_path: Path) -> None:
        (tmp_path / "switch").write_text("hosts: resolve [!UNAVAIL=return] files dns\n")

        assert network.in_hosts("/etc/hosts", str(tmp_path / "switch")) == {}

    def test_a_resolver_that_hangs_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        never = threading.Event()
        monkeypatch.setattr(network, "resolve", lambda name: ["192.0.2.1"] if name == "quick" else never.wait())

        answers, silent = network.resolve_all(["quick", "slow"], 2)
        never.set()

        assert (answers, silent) == ({"quick": ["192.0.2.1"]}, ["slow"])

    def test_addresses_that_hosts_gives_to_others_are_reported(self, tmp_path: Path) -> None:
        hosts = tmp_path / "hosts"
        hosts.write_text("127.0.0.1 localhost\n10.0.0.1 ctl1 # the head\n10.0.0.11 gpu02 gpu02.example.com\n")
        expected = {"ctl1": "10.0.0.1", "gpu01": "10.0.0.11", "gpu02": ""}

        result = network.reverse(expected, str(hosts))

        assert result == {"10.0.0.11": ["gpu02", "gpu02.example.com"]}


class TestAddresses:
    LINKS = """[
      {"ifname": "lo", "mtu": 65536, "addr_info": [{"local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
      {"ifname": "eno1", "mtu": 9000, "addr_info": [
        {"local": "10.0.0.11", "prefixlen": 24, "scope": "global"},
        {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
        {"local": "2001:db8::5", "prefixlen": 64, "scope": "global", "temporary": true}]},
      {"ifname": "docker0", "mtu": 1500, "addr_info": [{"local": "172.17.0.1", "prefixlen": 16, "scope": "global"}]},
      {}
    ]"""

    def test_those_that_other_nodes_know_it_by(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(network, "output", lambda argv: self.LINKS)

        assert network.addresses() == [
            {"interface": "eno1", "address": "10.0.0.11", "network": "10.0.0.0/24", "mtu": 9000}
        ]
        for text in ("", 'Option "-json" is unknown'):
            monkeypatch.setattr(network, "output", lambda argv, text=text: text)
            assert network.addresses() == []


def test_a_tool_that_is_missing_or_hangs_says_nothing() -> None:
    assert query.output(["/nonexistent/tool"]) == ""
    assert query.output(["sleep", "60"], 0.2) == ""
    assert query.output(["sh", "-c", "echo yes; exit 3"]) == "yes\n"


def test_a_node_is_reported_whole_with_what_it_is_to_be_compared_with() -> None:
    request = {
        "names": "localhost=127.0.0.1 gpu01", "ports": {"slurmctld": "6820", "slurmd": 6818}, "outside": [],
        "settings": {"set_hostname": True},
    }  # fmt: skip

    result = main.main(request)["deepops"]["doctor"]

    assert result["ports"] == {"slurmctld": 6820, "slurmd": 6818}
    assert result["settings"] == {"set_hostname": True}
    assert result["names"]["asked"] == 2
    assert result["memory_mb"] > 100
    assert result["cpus"] >= 1
    assert {disk["path"] for disk in result["disks"]} == {"/", "/var", "/tmp"}
    assert result["clock"]["begin"] <= result["clock"]["end"]


def test_a_repository_that_nobody_answers_at_is_reported_and_one_in_use_not_asked(tmp_path: Path) -> None:
    def entry(url: str, *unless: Path) -> dict[str, object]:
        return {"what": "Grafana", "url": url, "unless": [str(path) for path in unless]}

    nowhere = "http://127.0.0.1:9"
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # it knows no HEAD: any answer is one
        there = f"http://127.0.0.1:{server.server_port}"
        result = network.unreachable(
            [entry(there), entry(nowhere), entry(f"{nowhere}/in-use", tmp_path), entry("http://[", tmp_path / "no")]
        )
        server.shutdown()

    assert [each["url"] for each in result] == [nowhere, "http://["]
    assert "refused" in result[0]["why"]


def test_a_users_process_with_the_name_of_a_time_daemon_sets_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {os.getpid(): "chronyd"}

    monkeypatch.setattr(services, "PEOPLE", os.getuid())
    assert services.time_service(mine)["daemons"] == []

    monkeypatch.setattr(services, "PEOPLE", os.getuid() + 1)
    assert services.time_service(mine)["daemons"] == ["chronyd"]
