"""slurmctld and slurmdbd on two hosts, which save into one repository over SFTP; each comes back alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deepopsctl.lab.podman import podman
from deepopsctl.model.cluster import Role
from tests.lab.harness import (
    PREFIX,
    SETTINGS,
    LabCluster,
    assign_roles,
    edit,
    fresh_cluster,
    lab_up,
    wait_until,
)
from tests.lab.test_backup import HISTORY, state_of, submit

NAME = f"{PREFIX}-hosts"
NODES = ("--compute", "2", "--login", "1")
# no node of the cluster's, and an account for nothing else: deploys change neither
SERVER, SAVER = "login1", "saver"
KEY = "/root/.ssh/id_ed25519"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller, a compute node, a host for slurmdbd, and outside of the cluster one with the repository."""
    with fresh_cluster(NAME, tmp_path_factory, *NODES) as cluster:
        assign_roles(cluster, {"ctl1": Role.CONTROLLER, "cn01": Role.COMPUTE, "cn02": Role.DBD})
        server = cluster.root(SERVER, "hostname -I").split()[0]
        edit(cluster.directory / SETTINGS, "---\n", f"---\nslurm_backup_repository: sftp:{SAVER}@{server}:backup\n")
        cluster.root(
            SERVER,
            f"ssh-keygen -q -N '' -t ed25519 -f {KEY}; useradd -m -p '*' {SAVER}; cd ~{SAVER};"
            f"install -d -m 0700 -o {SAVER} .ssh; install -m 0600 -o {SAVER} {KEY}.pub .ssh/authorized_keys",
        )
        for node in ("ctl1", "cn02"):
            reach(cluster, node, server)
        assert cluster.deploy()["ok"]
        # it saves the accounts every five minutes, and when it ends: without them it does not start alone
        cluster.root("ctl1", "systemctl restart slurmctld")
        yield cluster


def reach(cluster: LabCluster, node: str, address: str) -> None:
    """Let root of a node log in to the repository's host."""
    key, host = cluster.root(SERVER, f"cat {KEY}"), cluster.root(SERVER, "cat /etc/ssh/ssh_host_ed25519_key.pub")
    cluster.root(
        node,
        f"mkdir -p -m 0700 /root/.ssh; umask 077; printf '%s\\n' '{key}' > {KEY};"
        f"echo '{address} {host}' >> /root/.ssh/known_hosts",
    )


@pytest.mark.timeout(3600)
def test_the_database_and_the_controller_come_back_one_after_the_other(cluster: LabCluster) -> None:
    done = submit(cluster, "--wait --wrap hostname")
    runs = submit(cluster, "--wrap 'sleep 10000'")
    wait_until("a job runs", lambda: state_of(cluster, runs) == "RUNNING")
    cluster.deepopsctl("backup", "run")
    saved = cluster.parsed("backup", "list")["nodes"][0]["snapshots"]
    assert {(entry["host"], *entry["parts"]) for entry in saved} >= {("ctl1", "state"), ("cn02", "accounting")}
    assert len(cluster.parsed("backup", "verify")["nodes"]) == 2
    for entry in saved:
        (verified,) = cluster.parsed("backup", "verify", entry["id"])["nodes"]
        assert verified["node"] == entry["host"]
    history = cluster.root("ctl1", HISTORY)
    assert done in history
    address = cluster.root(SERVER, "hostname -I").split()[0]

    for node, part in (("cn02", "accounting"), ("ctl1", "state")):
        podman("rm", "--force", "--time", "0", f"{NAME}-{node}")
        lab_up(NAME, *NODES)
        reach(cluster, node, address)
        login = ("--password-file", str(cluster.password_file))
        cluster.deepopsctl("ssh", "setup", "--accept-new-keys", node, *login)

        restored = cluster.parsed("restore", "--only", part, "--yes")

        assert restored["ok"]
        assert cluster.root("ctl1", HISTORY) == history
        assert state_of(cluster, runs) == "RUNNING"
        assert set(cluster.changed(cluster.deploy()).values()) == {0}
