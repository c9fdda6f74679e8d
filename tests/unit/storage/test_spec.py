"""What is mounted where, as cluster.yml declares it: read, checked as a whole, and handed on."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.editor import NewNodes, add_nodes, remove_nodes
from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.errors import InputError
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.model.storage import Mount
from tests.data.storage_samples import HEAD, HOME, PROJECT, SCRATCH, SERVED, WHOLE
from tests.support.cluster_yml import faults


def mounts(text: str) -> dict[str, Mount]:
    return {mount.name: mount for mount in parse_spec(text, "cluster.yml").storage}


def faults_of(*lines: str) -> list[str]:
    return faults(HEAD + "".join(f"  - {{{line}}}\n" for line in lines))


def variable(cluster: Cluster) -> object:
    top = build_inventory(cluster)["all"]
    assert isinstance(top, dict)
    return top["vars"].get("storage_mounts")


def test_storage_is_on_the_nodes_that_it_names_or_on_all_but_its_server() -> None:
    result = mounts(WHOLE)

    assert result["home"].nodes == result["data"].nodes == ("gpu1", "gpu2", "gpu3", "login1")
    assert result["disk"].nodes == ("gpu1", "gpu2")
    assert (result["home"].server, result["data"].server) == ("ctl1", "")


@pytest.mark.parametrize(
    "text", [WHOLE.replace("LABEL=disk", "LABEL=disk, snapshots: {}"), SERVED + HOME + PROJECT + SCRATCH]
)
def test_what_is_written_reads_back_as_the_same_storage(text: str) -> None:
    cluster = parse_spec(text, "cluster.yml")

    assert parse_spec(render_spec(cluster), "cluster.yml").storage == cluster.storage


def test_roles_read_every_key_of_every_mount() -> None:
    result = variable(parse_spec(WHOLE, "cluster.yml"))

    assert isinstance(result, list)
    assert result[0] == {
        "name": "home", "type": "nfs", "source": "ctl1:/srv/home", "path": "/home", "nodes": "gpu[1-3],login1",
        "options": ["ro"], "required": True, "automount": False, "automount_idle": "", "user_writable": "",
        "server": "ctl1", "nfs": {"nconnect": "4"},
    }  # fmt: skip


def test_an_empty_list_says_that_nothing_is_to_be_mounted_any_more() -> None:
    cluster = parse_spec(HEAD.replace("storage:\n", "storage: []\n"), "cluster.yml")

    assert variable(cluster) == []
    assert parse_spec(render_spec(cluster), "cluster.yml") == cluster


def test_all_faults_are_reported_at_once_with_their_lines() -> None:
    result = faults_of(
        "name: Home, type: nfs, source: /srv/home, path: /home",
        "name: a, type: zfs, path: /a",
        "name: b, type: nfs, source: 'x:/b', path: /etc/b, nodes: 'gpu[1-4]'",
    )

    assert [line.split()[0] for line in result] == ["cluster.yml:7", "cluster.yml:8", "cluster.yml:9", "cluster.yml:9"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("name: 1a, type: tmpfs, path: /a", "storage[0].name: '1a' can't be the name of storage"),
        ("name: a, type: nfs, path: /a", "storage[0].source: is missing"),
        ("name: a, type: nfs, source: /srv, path: /a", "storage[0].source: names no server"),
        ("name: a, type: nfs, source: 'x:srv', path: /a", "storage[0].source: 'x:srv' is not a SERVER:/PATH"),
        ("name: a, type: nfs, source: 'x y:/a', path: /a", "storage[0].source: 'x y:/a' can't be written"),
        ("name: a, type: nfs, source: 'gpu1:/a', path: /a", "gpu1 is a node of this cluster without the role"),
        ("name: a, type: nfs, source: '192.0.2.11:/a', path: /a", "gpu1 is a node of this cluster without"),
        ("name: a, type: nfs, source: 'ctl1:/etc', path: /a", "storage[0].source: /etc belongs to the system"),
        ("name: a, type: tmpfs, path: a", "storage[0].path: 'a' is not an absolute path"),
        ("name: a, type: tmpfs, path: /a/", "storage[0].path: /a/ is not in its shortest form"),
        ("name: a, type: tmpfs, path: /a/../etc", "storage[0].path: /a/../etc is not in its shortest form"),
        ("name: a, type: tmpfs, path: /", "storage[0].path: / belongs to the system"),
        ("name: a, type: tmpfs, path: /etc", "storage[0].path: /etc belongs to the system"),
        ("name: a, type: tmpfs, path: /dev/shm", "storage[0].path: /dev/shm belongs to the system"),
        ("name: a, type: tmpfs, path: '/a b'", "storage[0].path: '/a b' can't be used as a path"),
        ("name: a, type: tmpfs, path: /a, nodes: 'gpu[1-4]'", "storage[0].nodes: gpu[1-4] has no node gpu4"),
        ("name: a, type: tmpfs, path: /a, nodes: '@all'", "storage[0].nodes: @all: groups"),
        ("name: a, type: tmpfs, path: /a, source: 'x:/a'", "storage[0].source: a tmpfs has none"),
        ("name: a, type: tmpfs, path: /a, tmpfs: {size: big}", "storage[0].tmpfs.size: 'big' is not a valid size"),
        ("name: a, type: tmpfs, path: /a, tmpfs: {size: 200%}", "storage[0].tmpfs.size: '200%' is not a valid size"),
        ("name: a, type: tmpfs, path: /a, tmpfs: {siz: 1G}", "storage[0].tmpfs.siz: unknown key"),
        ("name: a, type: tmpfs, path: /a, nfs: {nconnect: 2}", "storage[0].nfs: is for entries of type nfs"),
        ("name: a, type: tmpfs, path: /a, pth: /b", "storage[0].pth: unknown key"),
        ("name: a, type: tmpfs, path: /a, options: [nofail]", "storage[0].options[0]: nofail is written by deepopsctl"),
        ("name: a, type: tmpfs, path: /a, options: [x-systemd.automount]", "x-systemd.automount is written by"),
        ("name: a, type: tmpfs, path: /a, options: [size=1G]", "storage[0].options[0]: size is written by deepopsctl"),
        ("name: a, type: tmpfs, path: /a, options: ['ro,noatime']", "'ro,noatime' is several options"),
        ("name: a, type: tmpfs, path: /a, options: [ro, rw]", "storage[0].options[1]: rw and ro contradict each other"),
        ("name: a, type: tmpfs, path: /a, options: [noexec, noexec]", "noexec and noexec contradict each other"),
        ("name: a, type: tmpfs, path: /a, user_writable: /b", "storage[0].user_writable: /b is not in /a"),
        ("name: a, type: local, source: disk, path: /a", "storage[0].source: 'disk' is neither a disk nor a directory"),
        ("name: a, type: local, source: /a, path: /a", "storage[0].source: is the path itself"),
        ("name: a, type: local, source: /b, path: /a, local: {fstype: xfs}", "storage[0].local.fstype: a directory"),
        ("name: a, type: nfs, source: 'x:/a', path: /a, nfs: {version: 2}", "nfs.version: '2' is not a version of NFS"),
        ("name: a, type: nfs, source: 'x:/a', path: /a, nfs: {nconnect: 99}", "nfs.nconnect: '99' is not a number"),
        ("name: a, type: nfs, source: 'x:/a', path: /a, nfs: {squash: all}", "nfs.squash: x is not a node of this"),
        ("name: a, type: tmpfs, path: /a, automount_idle: 10m", "storage[0].automount_idle: needs automount"),
        ("name: a, type: tmpfs, path: /a, automount: true, automount_idle: 1d", "'1d' is not a valid time without use"),
        ("name: a, type: nfs, source: 'x:/a', path: /a, nfs: {address: 10.2.0.1}", "nfs.address: is for exports of a"),
        ("name: a, type: nfs, source: 'ctl1:/a', path: /a, nfs: {address: 10.2.0.1}", "nfs.address: needs clients"),
        (
            "name: a, type: nfs, source: 'ctl1:/a', path: /a, nfs: {address: 10.2, clients: [10.2.0.0/16]}",
            "nfs.address: 10.2 is not an IP address",
        ),
        ("name: a, type: nfs, source: 'ctl1:/a', path: /a, nfs: {squash: me}", "nfs.squash: 'me' is not a user"),
        ("name: a, type: nfs, source: 'ctl1:/a', path: /a, nfs: {clients: ['*']}", "nfs.clients: '*' is everybody"),
        ("name: a, type: nfs, source: 'ctl1:/a', path: /a, nfs: {clients: [0.0.0.0/0]}", "0.0.0.0/0 is nearly"),
        ("name: a, type: nfs, source: 'ctl1:/a', path: /a, nfs: {clients: 10.0.0.0/24}", "nfs.clients: must be a list"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_key(line: str, fault: str) -> None:
    (result,) = faults_of(line)

    assert result.startswith("cluster.yml:7 ")
    assert fault in result


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        ("name: a, type: tmpfs, path: /c", "storage[1].name: a is already the name of storage at cluster.yml:7"),
        ("name: b, type: tmpfs, path: /a/b", "storage[1].path: /a/b is already a's on ctl1,gpu[1-3],login1"),
        ("name: b, type: tmpfs, path: /a, nodes: gpu2", "storage[1].path: /a would cover a's /a/b on gpu2"),
    ],
)
def test_two_entries_must_not_meet_on_a_node(second: str, fault: str) -> None:
    (result,) = faults_of("name: a, type: tmpfs, path: /a/b", second)

    assert fault in result


def test_one_path_may_be_two_things_on_different_nodes() -> None:
    entries = "".join(f"  - {{name: s{n}, type: tmpfs, path: /s, nodes: gpu{n}}}\n" for n in (1, 2))

    assert [mount.nodes for mount in mounts(HEAD + entries).values()] == [("gpu1",), ("gpu2",)]


def test_one_export_has_one_set_of_rules() -> None:
    (result,) = faults_of(
        "name: a, type: nfs, source: 'ctl1:/srv', path: /a, nodes: gpu1",
        "name: b, type: nfs, source: '192.0.2.1:/srv', path: /b, nodes: gpu2, nfs: {squash: none}",
    )

    assert "storage[1].nfs.squash: differs from a's at cluster.yml:7, which is the same export" in result


def test_an_export_that_somebody_else_looks_after_is_only_mounted() -> None:
    text = f"{HEAD}  - {{name: a, type: nfs, source: 'gpu1:/a', path: /a, nodes: gpu2, nfs: {{serve: false}}}}\n"

    assert mounts(text)["a"].server == ""


def test_a_new_node_mounts_what_its_like_mounts_and_a_removed_one_leaves_it() -> None:
    new = NewNodes((("gpu4", "192.0.2.14"),), Node("", frozenset({Role.COMPUTE})), like="gpu2")
    result, left = mounts(add_nodes(WHOLE, new)), mounts(remove_nodes(WHOLE, ["gpu2"]))

    assert result["disk"].nodes == ("gpu1", "gpu2", "gpu4")
    assert "gpu4" in result["home"].nodes
    assert "gpu4" in result["data"].nodes
    assert (left["disk"].nodes, left["disk"].written) == (("gpu1",), "gpu1")


def test_storage_without_nodes_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="the storage disk would have no node left"):
        remove_nodes(WHOLE, ["gpu1", "gpu2"])
