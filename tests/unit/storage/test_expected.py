"""What the storage suite expects on each machine, out of the inventory's own form of `storage`."""

from __future__ import annotations

from pathlib import Path

from deepopsctl.cluster.spec import load_spec
from deepopsctl.model.storage import Mount
from deepopsctl.storage.node_plan import addresses_of, expected_on, wanted_on
from deepopsctl.storage.writer import from_variable, variable
from tests.support.node_modules import load

inputs = load("deepops_storagecheck.inputs")

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
ADDRESSES = {"ctl1": "10.0.0.1"}


def declared(folder: Path, text: str = SPEC) -> tuple[Mount, ...]:
    """As the inventory hands it on."""
    path = folder / "cluster.yml"
    path.write_text(text, encoding="utf-8")
    return from_variable(variable(load_spec(path).storage))


def test_a_client_expects_what_its_unit_has(tmp_path: Path) -> None:
    home, data, scratch, san = inputs.expected(expected_on(declared(tmp_path), "gpu01", ADDRESSES))

    assert (home.source, home.fstype, home.options) == ("10.0.0.1:/srv/home", "nfs", ("vers=4.2", "noatime"))
    assert home.quota == {}
    assert (home.shared, home.squash, home.read_only) == (True, "root", False)
    assert (data.source, data.squash, data.read_only, data.user_writable) == ("filer:/data", "", True, "/data/a")
    assert (scratch.source, scratch.fstype, scratch.shared) == ("/srv/scratch", "none", False)
    assert san.shared


def test_the_server_expects_its_own_folder(tmp_path: Path) -> None:
    home = inputs.expected(expected_on(declared(tmp_path), "ctl1", ADDRESSES))[0]

    assert (home.source, home.fstype, home.served_here) == ("/srv/home", "none", True)
    assert home.quota["users"] == {"ada": [0, 1024**2, 0, 0]}


def test_a_server_without_a_mount_of_its_own_has_its_quota_judged_and_nothing_else(tmp_path: Path) -> None:
    home = declared(tmp_path, SPEC.replace('nodes: "ctl1,gpu[01-02]", ', ""))[:1]

    (at_server,) = inputs.expected(expected_on(home, "ctl1", ADDRESSES))

    assert at_server.only_quota
    assert at_server.quota["users"] == {"ada": [0, 1024**2, 0, 0]}
    assert not inputs.expected(expected_on(home, "gpu01", ADDRESSES))[0].only_quota
    assert [entry["nodes"] for entry in wanted_on(home, ["ctl1", "gpu01", "gpu02"], ADDRESSES)] == [["gpu01", "gpu02"]]


def test_a_machine_without_storage_expects_nothing(tmp_path: Path) -> None:
    assert expected_on(declared(tmp_path)[2:], "ctl1", ADDRESSES) == []


def test_the_suite_gets_every_entry_once_for_all_that_have_it_alike(tmp_path: Path) -> None:
    wanted = wanted_on(declared(tmp_path), ["ctl1", "gpu01", "gpu02"], ADDRESSES)

    assert [(entry["name"], entry["nodes"]) for entry in wanted] == [
        ("home", ["gpu01", "gpu02"]),
        ("home", ["ctl1"]),
        ("data", ["ctl1", "gpu01", "gpu02"]),
        ("scratch", ["gpu01", "gpu02"]),
        ("san", ["gpu01", "gpu02"]),
    ]
    assert [entry.name for entry in inputs.by_node(wanted)["gpu02"]] == ["home", "data", "scratch", "san"]


def test_only_servers_are_asked_for_their_addresses(tmp_path: Path) -> None:
    hostvars = {"ctl1": {"ansible_host": "10.0.0.1"}, "gpu01": {}}

    assert addresses_of(declared(tmp_path), hostvars) == ADDRESSES
