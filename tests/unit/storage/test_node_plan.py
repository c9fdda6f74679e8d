"""What nodes need for their storage, and what the suite expects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deepopsctl.model.storage import Platform
from deepopsctl.node_programs.suites.validate_storage import inputs
from deepopsctl.storage.node_plan import (
    NodePlan,
    addresses_of,
    clients_of,
    expected_on,
    exports_of,
    plan_node,
    required_on,
    wanted_on,
)
from deepopsctl.storage.systemd_units import escape, slurmd_drop_in
from tests.data.storage_samples import ADDRESSES, HEAD, WHOLE, mounts, plan
from tests.support.systemd import verify

LUSTRE = (
    HEAD
    + """\
  - {name: scratch, type: lustre, source: "192.0.2.21@tcp:/scratch", path: /scratch, nodes: gpu1, options: [flock],
     lustre: {version: 2.17.0, archives: {"https://x.example.com/lustre-client-utils_2.17.0_amd64.deb": "%s"}}}
"""
    % ("0" * 64)
)


def setting(text: str, key: str) -> str:
    """A setting of a unit."""
    (result,) = (line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}="))
    return result


def test_a_node_gets_its_own_mounts_and_no_others() -> None:
    assert [mount.name for mount in plan("gpu1").mounts] == ["home", "data", "disk", "fast"]
    assert [mount.name for mount in plan("gpu3").mounts] == ["home", "data", "fast"]
    assert plan("login1", LUSTRE) == NodePlan({}, (), (), ())


def test_a_mount_unit_waits_for_the_network_and_holds_up_nothing() -> None:
    home = plan("gpu1").mounts[0]

    assert home.unit == "home.mount"
    assert setting(home.text, "What") == "192.0.2.1:/srv/home"
    assert setting(home.text, "Options") == "vers=4.2,nconnect=4,ro,nosuid,nodev,_netdev"
    assert "network-online.target" in setting(home.text, "After").split()
    # as without it: at shutdown it goes before the network does
    assert setting(home.text, "DefaultDependencies") == "no"
    assert setting(home.text, "Conflicts") == setting(home.text, "Before") == "umount.target"
    assert setting(home.text, "WantedBy") == "remote-fs.target"


def test_what_is_mounted_at_first_use_is_started_by_its_other_unit() -> None:
    data = plan("gpu1").mounts[1]

    assert "[Install]" not in data.text
    assert setting(data.automount, "Where") == "/data"
    assert setting(data.automount, "WantedBy") == "remote-fs.target"
    assert setting(data.automount, "TimeoutIdleSec") == "10m"


def test_no_mount_helper_gets_what_only_systemd_reads() -> None:
    """mount.lustre hands options that it does not know to the kernel, which then mounts nothing."""
    known = {"_netdev", "defaults", "auto", "ro", "rw", "noatime", "nosuid", "nodev", "noexec", "flock"}
    (scratch,) = plan("gpu1", LUSTRE).mounts

    assert set(setting(scratch.text, "Options").split(",")) <= known


def test_local_storage_needs_no_network() -> None:
    disk, fast = plan("gpu1").mounts[2:]

    assert setting(disk.text, "What") == "/dev/disk/by-label/disk"
    assert setting(fast.text, "Options") == "size=16G,mode=1777,nosuid,nodev"
    assert "network" not in disk.text + fast.text
    assert setting(disk.text, "After") == "local-fs-pre.target"
    assert setting(disk.text, "Options") == "nosuid,nodev"


def test_the_serving_node_binds_its_own_directory() -> None:
    (home, served) = plan("ctl1", WHOLE.replace("path: /home,", "path: /home, nodes: all,")).mounts

    assert (setting(home.text, "What"), setting(home.text, "Type")) == ("/srv/home", "none")
    assert setting(home.text, "Options") == "bind,ro,nosuid,nodev"
    assert (served.path, setting(served.text, "What")) == ("/srv/home", "/srv/home")


def on_server(text: str) -> dict[str, str]:
    """Options of ctl1's mounts by path."""
    return {mount.path: setting(mount.text, "Options") for mount in plan("ctl1", text).mounts}


def test_nobody_gets_rights_by_a_file_in_a_directory_that_the_node_exports() -> None:
    """Root of a client may write a file there that belongs to whomever it likes, with the setuid bit."""
    as_is = WHOLE.replace('"ctl1:/srv/home", path: /home,', '"ctl1:/home", path: /home, nodes: all,')
    disk = "  - {name: disk-of-homes, type: local, source: LABEL=homes, path: /srv, nodes: ctl1}\n"
    exec_disk = disk.replace("nodes: ctl1", "nodes: ctl1, options: [suid]")
    inner = disk.replace("path: /srv", "path: /srv/home/inner")

    # nosuid is a property of a mount: the directory is mounted on itself
    assert on_server(WHOLE) == {"/srv/home": "bind,nosuid,nodev"}
    assert on_server(as_is) == {"/home": "bind,nosuid,nodev"}
    # the file system that it is on has it already
    assert on_server(WHOLE + disk) == {"/srv": "nosuid,nodev"}
    assert on_server(WHOLE + exec_disk) == {"/srv": "suid,nodev", "/srv/home": "bind,nosuid,nodev"}
    # never over what is mounted below it
    assert list(on_server(WHOLE + inner)) == ["/srv/home", "/srv/home/inner"]


def test_an_entry_that_asks_for_it_keeps_setuid_programs_and_devices() -> None:
    suid, both = WHOLE.replace("[ro]", "[suid]"), WHOLE.replace("[ro]", "[suid, dev]")

    assert setting(plan("gpu1", suid).mounts[0].text, "Options") == "vers=4.2,nconnect=4,suid,nodev,_netdev"
    assert setting(plan("gpu1", both).mounts[0].text, "Options") == "vers=4.2,nconnect=4,suid,dev,_netdev"
    assert on_server(suid) == {"/srv/home": "bind,suid,nodev"}
    assert on_server(both) == {}


def test_an_export_is_for_the_nodes_that_mount_it() -> None:
    home = mounts()[0]
    named = mounts(WHOLE.replace("{nconnect: 4}", "{clients: [192.0.2.0/24]}"))[0]

    assert clients_of(home, ADDRESSES) == ["192.0.2.11", "gpu2", "gpu3", "login1"]
    assert clients_of(named, ADDRESSES) == ["192.0.2.0/24"]


def test_a_server_is_reached_by_its_address_on_the_storage_network() -> None:
    text = WHOLE.replace("{nconnect: 4}", "{address: 10.2.0.1, clients: [10.2.0.0/16], rdma: true}")
    (export,) = exports_of(mounts(text), "ctl1", ADDRESSES)

    assert setting(plan("gpu1", text).mounts[0].text, "What") == "10.2.0.1:/srv/home"
    assert export.line.startswith("/srv/home 10.2.0.0/16(")


def test_a_client_that_nobody_makes_for_a_platform_is_refused_with_those_it_is_made_for() -> None:
    result = plan_node(mounts(), "gpu3", ADDRESSES, Platform("Rocky 9"))

    assert [problem.partition(" (")[0] for problem in result.problems] == [
        "storage home: nfs has no client for Rocky 9",
        "storage data: nfs has no client for Rocky 9",
    ]
    assert "Debian 13" in result.problems[0]


def test_slurmd_waits_for_what_is_required_and_needs_none_of_it() -> None:
    text = slurmd_drop_in(required_on(mounts(), "gpu1"))

    assert setting(text, "After") == setting(text, "Wants") == "home.mount"
    assert "Requires" not in text


@pytest.mark.parametrize("path", ["/home", "/data/new-x", "/.hidden/a", "/a+b/c=d", "/a@b:c", "/a_b.c"])
def test_units_are_named_as_systemd_names_them(path: str) -> None:
    if not shutil.which("systemd-escape"):
        pytest.skip("systemd is not installed here")
    done = subprocess.run(["systemd-escape", "--path", path], stdout=subprocess.PIPE, text=True, check=True)

    assert escape(path) == done.stdout.strip()


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    units = {mount.unit: mount.text for mount in plan("gpu1").mounts}
    automounts = {mount.unit.replace(".mount", ".automount"): mount.automount for mount in plan("gpu1").mounts}

    verify(tmp_path, {name: text for name, text in (units | automounts).items() if text})


SPEC = """
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: "10.0.0.1", roles: [controller, nfs_server]}
  - {names: "gpu[01-02]", addresses: "10.0.1.[1-2]", roles: [compute]}
partitions:
  - {name: gpu, nodes: "gpu[01-02]"}
storage:
  - {name: home, type: nfs, source: "ctl1:/srv/home", path: /home, nodes: "ctl1,gpu[01-02]", options: [noatime],
     quota: {users: {ada: {space: 1G}}}}
  - {name: data, type: nfs, source: "filer:/data", path: /data, options: [ro], user_writable: /data/a}
  - {name: scratch, type: local, source: /srv/scratch, path: /scratch, nodes: "gpu[01-02]"}
  - {name: san, type: local, source: /srv/san, path: /san, nodes: "gpu[01-02]", local: {shared: true}}
"""
NODES_AT = {"ctl1": "10.0.0.1"}


def test_a_client_expects_what_its_unit_has_and_the_server_its_own_directory() -> None:
    home, data, scratch, san = inputs.expected(expected_on(mounts(SPEC), "gpu01", NODES_AT))
    at_server = inputs.expected(expected_on(mounts(SPEC), "ctl1", NODES_AT))[0]

    assert (home.source, home.fstype, home.options) == (
        "10.0.0.1:/srv/home", "nfs", ("vers=4.2", "noatime", "nosuid", "nodev"),
    )  # fmt: skip
    assert (home.quota, home.shared, home.squash, home.read_only) == ({}, True, "root", False)
    assert (data.source, data.squash, data.read_only, data.user_writable) == ("filer:/data", "", True, "/data/a")
    assert (scratch.source, scratch.fstype, scratch.shared) == ("/srv/scratch", "none", False)
    assert san.shared
    assert (at_server.source, at_server.fstype, at_server.served_here) == ("/srv/home", "none", True)
    assert at_server.quota["users"] == {"ada": [0, 1024**2, 0, 0]}


def test_a_server_without_a_mount_of_its_own_has_its_quota_evaluated_and_nothing_else() -> None:
    home = mounts(SPEC.replace('nodes: "ctl1,gpu[01-02]", ', ""))[:1]

    (at_server,) = inputs.expected(expected_on(home, "ctl1", NODES_AT))

    assert at_server.only_quota
    assert at_server.quota["users"] == {"ada": [0, 1024**2, 0, 0]}
    assert not inputs.expected(expected_on(home, "gpu01", NODES_AT))[0].only_quota
    assert [entry["nodes"] for entry in wanted_on(home, ["ctl1", "gpu01", "gpu02"], NODES_AT)] == [["gpu01", "gpu02"]]


def test_the_suite_gets_every_entry_once_for_all_that_have_it_the_same_way() -> None:
    wanted = wanted_on(mounts(SPEC), ["ctl1", "gpu01", "gpu02"], NODES_AT)

    assert [(entry["name"], entry["nodes"]) for entry in wanted] == [
        ("home", ["gpu01", "gpu02"]),
        ("home", ["ctl1"]),
        ("data", ["ctl1", "gpu01", "gpu02"]),
        ("scratch", ["gpu01", "gpu02"]),
        ("san", ["gpu01", "gpu02"]),
    ]
    assert [entry.name for entry in inputs.by_node(wanted)["gpu02"]] == ["home", "data", "scratch", "san"]


def test_only_servers_are_asked_for_their_addresses() -> None:
    assert addresses_of(mounts(SPEC), {"ctl1": {"ansible_host": "10.0.0.1"}, "gpu01": {}}) == NODES_AT
