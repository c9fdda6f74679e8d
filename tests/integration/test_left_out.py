"""What cannot be fetched is left out by itself: the play continues, and reports what it left out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from deepopsctl.content import playbook
from deepopsctl.model.storage import Mount, StorageType
from deepopsctl.storage.writer import variable
from tests.support.files import write_program
from tests.support.local_ansible import Played, play
from tests.support.paths import ROOT

# a port at which nothing listens
NOWHERE = "http://127.0.0.1:9"
LIBRARY = {
    "package": "none",
    "version": "1.0",
    "files": ["none"],
    "wheels": {"any": {"platform": "any", "sha256": "0"}},
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A role whose repository, a module whose key and another whose wheels are out of reach; nothing is written."""
    directory = tmp_path_factory.mktemp("left-out")
    container = {
        "role": "nvidia_container",
        "nvidia_container_toolkit": True,
        "nvidia_container_repository_url": NOWHERE,
        "nvidia_container_catalogue": {"version": "1", "packages": ["none"], "fingerprint": "0" * 40},
    }
    key = {
        "keyring": str(directory / "key.asc"),
        "key": f"{NOWHERE}/key.asc",
        "fingerprint": "0" * 40,
        "hint": "a mirror",
    }
    wheels = {"component": "none", "step": "none", "path": str(directory / "wheels"), "libraries": {"none": LIBRARY}}
    tasks = [
        {"name": "A key", "deepopsctl.cluster.apt_source": key},
        {"name": "Wheels", "deepopsctl.cluster.python_wheels": wheels, "check_mode": False},
        {"name": "What comes after", "ansible.builtin.debug": {"msg": "continues"}},
    ]
    plays = [{"hosts": "all", "gather_facts": False, "roles": [container], "tasks": tasks}]
    cache = {"XDG_CACHE_HOME": str(directory / "cache"), "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0"}
    return play(directory, plays, {"node": {"deepops_digests": {}}}, "--check", settings=cache)


@pytest.mark.parametrize(
    ("task", "message", "hint"),
    [
        ("Configure NVIDIA's container repository", f"{NOWHERE}/gpgkey", "nvidia_container_toolkit: false"),
        ("A key", f"{NOWHERE}/key.asc", "a mirror"),
        ("Wheels", "none 1.0", "a package index"),
    ],
)
def test_what_is_out_of_reach_is_named_with_what_to_do(played: Played, task: str, message: str, hint: str) -> None:
    result = played.result(task)

    assert (result.status, result.changed) == ("ok", False), played.output
    assert message in result.data["deepops_left_out"]["message"]
    assert hint in result.data["deepops_left_out"]["hint"]


def test_nothing_more_of_its_role_is_done_and_all_the_rest_is(played: Played) -> None:
    tasks = [result.task for result in played.results if result.status == "ok"]

    assert "What comes after" in tasks
    assert "Install the container toolkit" not in tasks
    assert played.status == 0, played.output


REPOSITORY = {"repository": NOWHERE, "key": f"{NOWHERE}/key.asc", "fingerprint": "0" * 40}
ARCHIVE = {"archives": {f"{NOWHERE}/a_1_amd64.deb": "0" * 64}}


def lustre(directory: Path, node: str, source: Mapping[str, object], *, required: bool = False) -> Mount:
    settings = {"version": "1.0", "modules": "packages", "untested": True, **source}
    where = ("192.0.2.1@tcp:/fs", f"{directory}/scratch", (node,))
    return Mount("scratch", StorageType.LUSTRE, *where, required=required, settings=settings)


# node -> where its client comes from, whether it has to have it, what can't be fetched
STORAGE: Mapping[str, tuple[Mapping[str, object], bool, str]] = {
    "repository": (REPOSITORY, False, f"{NOWHERE}/key.asc"),
    "archive": (ARCHIVE, False, f"{NOWHERE}/a_1_amd64.deb"),
    "required": (REPOSITORY, True, f"{NOWHERE}/key.asc"),
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Played]:
    """The role storage in check mode, on a node each: Lustre, whose packages are out of reach, and a tmpfs."""
    directory = tmp_path_factory.mktemp("storage")
    memory = Mount("memory", StorageType.TMPFS, "tmpfs", f"{directory}/memory", tuple(STORAGE))
    hosts = {
        name: {
            "deepops_digests": {},
            "entries": variable([lustre(directory, name, source, required=required), memory]),
        }
        for name, (source, required, _) in STORAGE.items()
    }
    role = {
        "role": "storage",
        "storage_entries": "{{ entries }}",
        "storage_addresses": {},
        "storage_platform": "Debian 13",
        "storage_is_compute": False,
    }
    plays = [{"hosts": "all", "gather_facts": True, "gather_subset": ["!all"], "roles": [role]}]
    # a node with systemd, and no unit of these mounts
    systemctl = write_program(directory / "bin" / "systemctl", "echo LoadState=not-found")
    path = {"PATH": f"{systemctl.parent}:{os.environ['PATH']}"}
    return directory, play(directory, plays, hosts, "--check", settings=path)


@pytest.mark.parametrize("node", ["repository", "archive"])
def test_a_client_out_of_reach_costs_its_own_mounts_alone(planned: tuple[Path, Played], node: str) -> None:
    directory, played = planned[0], planned[1].on(node)

    left_out = played.result("Configure package sources of kernel-bound clients").data["deepops_left_out"]
    mounts = played.result("Mount and unmount file systems").data
    assert f"lustre 1.0 is left out: cannot fetch {STORAGE[node][2]}" in left_out["message"]
    assert "of the entry in cluster.yml" in left_out["hint"]
    assert [change["name"] for change in mounts["changes"] if change["kind"] == "mount"] == [f"{directory}/memory"]
    assert mounts["warnings"] == ["storage scratch can't be mounted: its client is left out"]
    assert [result for result in played.results if result.status not in ("ok", "skipped")] == []


def test_a_node_whose_required_storage_has_no_client_fails_with_all_else_mounted(
    planned: tuple[Path, Played],
) -> None:
    directory, played = planned

    mounts = played.on("required").result("Mount and unmount file systems")
    assert mounts.status == "failed"
    assert mounts.data["msg"] == "storage scratch can't be mounted: its client is left out"
    assert mounts.data["hint"] == "deploy again when the packages of its client can be fetched"
    assert f"{directory}/memory" in [change["name"] for change in mounts.data["changes"]]


def test_a_package_of_grafana_out_of_reach_leaves_grafana_out(tmp_path: Path) -> None:
    grafana = {
        "role": "grafana",
        "grafana_address": "192.0.2.1",
        "grafana_prometheus_url": "http://192.0.2.1:9090",
        "grafana_alertmanager_url": "http://192.0.2.1:9093",
        "grafana_web_password": "x",
        "grafana_catalogue": {"version": "1", "fingerprint": "0" * 40},
        "grafana_package": f"{NOWHERE}/grafana.deb",
        "grafana_package_sha256": "0" * 64,
    }
    message = "{{ grafana_source_result.deepops_left_out }}"
    after = {"name": "What comes after", "ansible.builtin.debug": {"msg": message}}
    plays = [{"hosts": "all", "gather_facts": False, "roles": [grafana], "tasks": [after]}]

    played = play(tmp_path, plays, {"node": {"deepops_digests": {}}}, "--check")

    left_out = played.result("Report a package that can't be fetched").data["deepops_left_out"]
    assert f"cannot fetch {NOWHERE}/grafana.deb" in left_out["message"]
    assert "grafana_enabled: false" in left_out["hint"]
    assert played.result("What comes after").status == "ok"
    assert "Install Grafana" not in [result.task for result in played.results if result.status == "ok"]
    assert played.status == 0, played.output


def test_doctor_asks_at_the_addresses_that_a_deploy_fetches_from(tmp_path: Path) -> None:
    (task,) = yaml.safe_load(playbook("operate/cluster/doctor").read_text(encoding="utf-8"))[0]["tasks"]
    (tmp_path / "roles").symlink_to(ROOT / "roles")
    directory = tmp_path / "playbooks" / "operate" / "cluster"
    directory.mkdir(parents=True)

    # each is the monitoring host of a site
    sites: dict[str, tuple[Mapping[str, object], str]] = {
        "mirrors": (REPOSITORY, f"{NOWHERE}/grafana.deb"),
        "files": (ARCHIVE, "/srv/grafana.deb"),
        "neither": ({}, ""),
    }
    hosts = {
        name: {
            "monitoring_enabled": True,
            "monitoring_host": name,
            "grafana_package": package,
            "storage_mounts": variable([lustre(directory, name, source)]),
        }
        for name, (source, package) in sites.items()
    }
    show = {"name": "Outside", "ansible.builtin.debug": {"msg": "{{ deepops_outside }}"}, "vars": task["vars"]}

    played = play(directory, [{"hosts": "all", "gather_facts": False, "tasks": [show]}], hosts)

    asked = {
        host: {each["what"]: each["url"] for each in played.on(host).result("Outside").data["msg"]} for host in hosts
    }
    assert asked == {
        "mirrors": {"Grafana": f"{NOWHERE}/grafana.deb", "lustre with scratch": NOWHERE},
        "files": {"lustre with scratch": f"{NOWHERE}/a_1_amd64.deb"},
        "neither": {"Grafana": "https://apt.grafana.com"},
    }
