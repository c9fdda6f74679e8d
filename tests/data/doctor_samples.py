"""A small cluster as `node_doctor` reported it: one real report of a node, turned into three."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.doctor.check_builders import Declared
from deepopsctl.doctor.facts import Address, ControlFacts, NodeFacts, Requirement, SeenGpus, parse_facts
from deepopsctl.model.cluster import Cluster
from deepopsctl.slurm.hardware import NodeHardware

SPEC = """
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: "10.89.6.10", roles: [controller]}
  - {names: "gpu[01-02]", addresses: "10.89.6.[101-102]", roles: [compute], gpus: {type: a100, count: 2}}
partitions:
  - {name: gpu, nodes: "gpu[01-02]", default: true}
"""
# what the module returned on a lab's gpu01 after a deploy
REPORT: dict[str, Any] = {
    "addresses": [{"interface": "eth0", "address": "10.89.6.101", "network": "10.89.6.0/24", "mtu": 1500}],
    "asked": {"before": 1795288443.0020447, "after": 1795288445.0744643},
    "clock": {"begin": 1795288444.8239102, "end": 1795288444.9560387},
    "container": True,
    "cpus": 2,
    "database": {
        "bind_address": "127.0.0.1", "innodb_lock_wait_timeout": "900", "innodb_snapshot_isolation": "OFF",
        "max_allowed_packet": "16777216",
    },
    "deepops_cgroup": "v1",
    "deepops_cgroup_writable": True,
    "disks": [
        {"path": "/", "free_mb": 76241, "inodes": 16777216, "free_inodes": 16295824, "read_only": False},
        {"path": "/var", "free_mb": 76241, "inodes": 16777216, "free_inodes": 16295824, "read_only": False},
        {"path": "/tmp", "free_mb": 12052, "inodes": 3085512, "free_inodes": 3085503, "read_only": False},
    ],
    "firewalls": [],
    "gpus": {"bus": [], "files": 2, "models": [], "driver": "", "modules": {}},
    "hostname": "gpu01",
    "kernel": "6.18.44-fc-v595",
    "listeners": [{"port": 6818, "pid": 611, "command": "slurmd"}],
    "machine_id": "63d53b12062acc5a41cc315e35e6cd31",
    "memory_mb": 24105,
    "names": {
        "asked": 3, "called": {}, "managed": True, "otherwise": {}, "silent": [],
        "unresolved": [],
    },
    "outside": [],
    "packages": {"manager": "dpkg", "lock": None, "broken": [], "interrupted": False, "seen": True},
    "platform": {
        "distribution": "Debian", "distribution_major_version": "13", "distribution_version": "13",
        "os_family": "Debian",
    },
    "ports": {"slurmctld": 6817, "slurmd": 6818, "slurmdbd": 6819, "mariadb": 3306},
    "python": "3.13.5",
    "refusals": {},
    "restarts": {"causes": [], "unheld": []},
    "root": True,
    "secure_boot": "unknown",
    "settings": {
        "set_hostname": True, "confinement": "auto", "tested": {"Debian": ["12", "13"]},
        "user_id": 0, "package_user_ids": {"Debian": 64030}, "slurm": {},
    },
    "slurm": {"daemons": ["slurmd"], "version": "24.11.5", "managed": True, "plugins": [
        {"path": "/usr/local/lib/slurm/spank_pyxis.so", "required": True, "there": True, "version": "24.11.3"},
    ]},
    "storage": [],
    "sudo": "",
    "time": {"daemons": [], "synchronised": False},
    "unmet": [],
    "users": {"slurm": "64030:64030", "ubuntu": "1000:1000"},
    "login": {"user": "ubuntu", "networked": "", "keys": "root"},
    "versions": {"munge": "0.5.16-1.1~deb13u1", "slurm-client": "24.11.5-4+deb13u1", "slurmd": "24.11.5-4+deb13u1"},
}  # fmt: skip
HARDWARE = NodeHardware(2, 1, 1, 2, 1, 24105, "v1")


GPUS = SeenGpus(("0x20b0",) * 2, 2, ("NVIDIA A100-SXM4-40GB",) * 2, "570.86.15", {"nvidia": True})


@dataclass(frozen=True)
class World:
    """Everything the doctor evaluates about nodes."""

    declared: Declared
    nodes: tuple[NodeFacts, ...]

    def node(self, name: str) -> NodeFacts:
        """One of the nodes."""
        return next(node for node in self.nodes if node.name == name)

    def but(self, name: str, **changes: Any) -> World:
        """The same with one node changed."""
        return replace(
            self, nodes=tuple(replace(node, **changes) if node.name == name else node for node in self.nodes)
        )

    def all_but(self, **changes: Any) -> World:
        """The same with all nodes changed."""
        return replace(self, nodes=tuple(replace(node, **changes) for node in self.nodes))

    def declaring(self, old: str, new: str) -> World:
        """The same with another cluster.yml."""
        assert old in SPEC
        cluster = parse_spec(SPEC.replace(old, new), "cluster.yml")
        return replace(self, declared=replace(self.declared, cluster=cluster))


def cluster() -> Cluster:
    """The cluster of SPEC."""
    return parse_spec(SPEC, "cluster.yml")


def healthy() -> World:
    """Physical nodes with nothing wrong: two A100 each on the bus, a driver, a time service."""
    declared = Declared(cluster(), {"gpu01": HARDWARE, "gpu02": HARDWARE})
    return World(declared, tuple(_node(number, node.name) for number, node in enumerate(declared.cluster.nodes)))


def _node(number: int, name: str) -> NodeFacts:
    recorded = parse_facts(name, REPORT)
    compute = name.startswith("gpu")
    return replace(
        recorded,
        hostname=name,
        machine_id=f"{number:032x}",
        container=False,
        addresses=(Address("eth0", f"10.89.6.{100 + number if compute else 10}", "10.89.6.0/24", 1500),),
        names=replace(recorded.names, otherwise={}),
        listeners=recorded.listeners if compute else (),
        gpus=GPUS if compute else SeenGpus(),
        secure_boot="off",
        time_daemons=("chronyd",),
        synchronised=True,
    )


def control() -> ControlFacts:
    """A control machine with nothing wrong."""
    return ControlFacts(
        python=Requirement("Python", "3.11.7", ">=3.11", good=True),
        packages=(
            Requirement("ansible-core", "2.19.14", "<2.22,>=2.19.4", good=True),
            Requirement("ansible-runner", "2.4.3", "<3,>=2.4.3", good=True),
        ),
        ssh="OpenSSH 9.2p1",
        free_mb=70_000,
        open_files=(),
        vault="",
    )
