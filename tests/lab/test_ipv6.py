"""A cluster that is reached by IPv6 alone is deployed and runs jobs."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from deepopsctl.lab.containers import network_name
from tests.lab.harness import PREFIX, LabCluster, command, fresh_lab

NETWORK = ipaddress.IPv6Network("fd5e:a11:5:1::/64")
HOST_BITS = {"ctl1": 0x1, "cn01": 0x11, "cn02": 0x12}
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="this machine's side of the network gets an address by root")


def address(node: str) -> str:
    return str(NETWORK[HOST_BITS[node]])


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A lab whose nodes have addresses of IPv6, too, and a cluster directory with these alone."""
    with fresh_lab(f"{PREFIX}-ipv6", "--compute", "2") as lab:
        made = LabCluster.of(lab, tmp_path_factory.mktemp("ipv6") / "cluster")
        inspected = subprocess.run(
            ["podman", "network", "inspect", network_name(made.name)], capture_output=True, text=True, check=True
        )
        bridge = json.loads(inspected.stdout)[0]["network_interface"]
        subprocess.run(["ip", "address", "add", f"{NETWORK[0xFE]}/64", "dev", bridge, "nodad"], check=True)
        for node in HOST_BITS:
            made.root(node, f"ip address add {address(node)}/64 dev eth0 nodad")
        nodes = [f"--compute=cn[01-02]={address('cn01')},{address('cn02')}", f"--controller=ctl1={address('ctl1')}"]
        done = command("init", str(made.directory), *nodes, "--user", "ubuntu", "--name", "six")
        assert done.returncode == 0, done.stderr
        made.deepopsctl("ssh", "setup", "--password-file", str(made.password_file))
        yield made


def test_it_is_deployed_and_runs_jobs_without_ipv4(cluster: LabCluster) -> None:
    cluster.deepopsctl("deploy", "slurm")

    for node in HOST_BITS:
        cluster.root(node, "ip -4 address flush dev eth0")
        cluster.root(
            node,
            "for unit in munge slurmdbd slurmctld slurmd; do systemctl try-restart $unit || true; done",
        )
    ran = cluster.root(
        "ctl1", "for i in $(seq 60); do sinfo -h -t idle -o %D | grep -q 2 && break; sleep 1; done; srun -N2 hostname"
    )
    assert sorted(ran.split()) == ["cn01", "cn02"]
    assert "COMPLETED" in cluster.root("ctl1", "sacct -n -X -o state")
    again = json.loads(cluster.deepopsctl("deploy", "slurm", "--json").stdout)
    assert {host["changed"] for host in again["hosts"].values()} == {0}
    assert cluster.deepopsctl("validate", "smoke").returncode == 0
