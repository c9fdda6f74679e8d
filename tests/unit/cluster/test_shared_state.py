"""`slurm_state`: which entries of storage can have the state of several controllers."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.slurm import failover
from tests.support.cluster_yml import faults
from tests.support.problems import problems_of

CLUSTER = """\
schema: 1
nodes:
  - {{names: "ctl[1-2]", addresses: "10.0.0.[1-2]", roles: [controller]}}
  - {{names: fs1, addresses: 10.0.0.9, roles: [nfs_server]}}
  - {{names: "n[1-4]", addresses: "10.0.1.[1-4]", roles: [compute]}}
storage:
  - {{name: state, path: /srv/slurm, {entry}}}
slurm_state: state
"""
NFS = 'type: nfs, source: "fs1:/export/state", nodes: controller'


def test_it_comes_to_the_nodes_and_back_into_cluster_yml() -> None:
    cluster = parse_spec(CLUSTER.format(entry=NFS), "cluster.yml")

    inventory: dict[str, Any] = build_inventory(cluster)
    assert inventory["all"]["vars"]["slurm_state"] == {
        "mount": "/srv/slurm",
        "directory": "/srv/slurm/slurmctld",
        "network": True,
        "unit": "srv-slurm.mount",
    }
    assert parse_spec(render_spec(cluster), "cluster.yml") == cluster


@pytest.mark.parametrize(
    ("version", "options"), [("", ["noatime", "clientaddr=0.0.0.0"]), (", nfs: {version: 4.2}", ["noatime"])]
)
def test_an_nfs_server_gives_controllers_no_delegations(version: str, options: list[str]) -> None:
    cluster = parse_spec(CLUSTER.format(entry=f"{NFS}, options: [noatime]{version}"), "cluster.yml")

    inventory: dict[str, Any] = build_inventory(cluster)

    (mount,) = inventory["all"]["vars"]["storage_mounts"]
    assert mount["options"] == options
    assert mount["nfs"]["version"] == ("4.2" if version else "4.0")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("type: local, source: /dev/sdb", "is every controller's own"),
        ("type: tmpfs", "is every controller's own"),
        (NFS.replace("fs1:", "ctl1:"), "is served by the controller ctl1, and is lost with it"),
        (NFS.replace("nodes: controller", "nodes: ctl1"), "is not mounted on ctl2"),
        (f"{NFS}, automount: true", "is mounted at first use"),
        (f"{NFS}, user_writable: /srv/slurm/u", "is for users' files"),
        (f"{NFS}, options: [ro]", "is mounted read-only"),
        (
            NFS.replace(", nodes: controller", ""),
            "is mounted on n[1-4] as well, whose root could give Slurm other jobs",
        ),
        (NFS.replace("nodes: controller", 'nodes: "controller,n2"'), "is mounted on n2 as well"),
        (
            NFS + '}\n  - {name: all, type: nfs, source: "fs1:/export", path: /export',
            "state is in fs1:/export, which n[1-4] mount as all",
        ),
        (
            NFS.replace("fs1:/export/state", "filer:/vol")
            + '}\n  - {name: same, type: nfs, source: "filer:/vol", path: /v',
            "state is in filer:/vol, which fs1,n[1-4] mount as same",
        ),
    ],
)
def test_what_two_controllers_can_t_share_or_would_lose_is_refused(entry: str, message: str) -> None:
    text = CLUSTER.format(entry=entry).replace("[nfs_server]", "[login]" if "ctl1:" in entry else "[nfs_server]")

    assert [fault for fault in faults(text) if message in fault]


def test_an_unknown_entry_is_refused_with_a_suggestion() -> None:
    text = CLUSTER.format(entry=NFS).replace("slurm_state: state", "slurm_state: stat")

    (problem,) = problems_of(parse_spec, text, "cluster.yml")
    assert (problem.where, problem.message) == ("cluster.yml:8", "slurm_state: storage has no entry stat")
    assert "state" in problem.hint


def test_a_shared_disk_with_a_cluster_file_system_is_taken() -> None:
    cluster = parse_spec(
        CLUSTER.format(entry="type: local, source: /dev/sdb, nodes: controller, local: {shared: true}"), "cluster.yml"
    )

    assert cluster.state_mount is not None


@pytest.mark.parametrize("version", ["22.05.8-4", "24.05.3", "24.11.4"])
def test_releases_that_fail_when_control_changes_are_refused(version: str) -> None:
    assert version[:5] in failover.refusal(version)


@pytest.mark.parametrize("version", ["24.11.5-4+deb13u1", "26.05.5-1", ""])
def test_others_and_what_is_not_installed_yet_are_taken(version: str) -> None:
    assert failover.refusal(version) == ""
