"""The clusters that configuration is rendered for: what a person wrote, and what the nodes answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepopsctl.cluster.inventory import build_inventory, group_members
from deepopsctl.cluster.spec import parse_spec
from tests.roles.content import load, role_calls
from tests.support.paths import ROOT

# The worked examples of docs/deploy/policy.md.
EXAMPLE_NAMES = ("one-dgx", "university", "mixed")
DEBIAN12 = "22.05.8-4+deb12u3"
DEBIAN13 = "24.11.5-4+deb13u1"


def slurmd(sockets: int, cores: int, threads: int, memory: int) -> str:
    """What `slurmd -C` prints on a node with one board; memory in MiB."""
    return (
        f"NodeName=x CPUs={sockets * cores * threads} Boards=1 SocketsPerBoard={sockets} CoresPerSocket={cores} "
        f"ThreadsPerCore={threads} RealMemory={memory}\nUpTime=0-00:00:01\n"
    )


DGX = slurmd(2, 56, 2, 2063937)
WORKER = slurmd(2, 32, 1, 257000)
VIRTUAL = slurmd(1, 4, 1, 7950)


@dataclass(frozen=True)
class Case:
    """One cluster; `reports` has the nodes that answered, `cgroup` what they have."""

    spec: str
    version: str
    reports: Mapping[str, str]
    cgroup: str = "v2"
    without_cgroup: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    # Debian 13's packages have the plugin
    pmix: bool = True

    def plays(self, name: str, clusters: Path) -> list[dict[str, Any]]:
        """The role slurm_conf as playbooks/slurm.yml calls it, then every template, on one host of each type."""
        cluster = parse_spec(self.spec, "cluster.yml")
        (clusters / name).mkdir()
        inventory: Any = build_inventory(cluster)
        members = group_members(cluster)
        declared = {key: value for key, value in inventory["all"]["vars"].items() if not key.startswith("ansible_")}
        # a cluster's nodes are many and identical; hundreds of templates would be rendered for nothing
        few = sorted({members["slurm_controller"][0], members["slurm_dbd"][0], members["slurm_compute"][-1]})
        common = {
            "gather_facts": False,
            "vars": {
                **declared,
                "slurm_controller_hosts": list(members["slurm_controller"]),
                "slurm_compute_hosts": list(members["slurm_compute"]),
                "slurm_dbd_host": members["slurm_dbd"][0],
                "slurm_dbd_hosts": list(members["slurm_dbd"]),
                "slurm_dbd_password": "example-password",
                "deepops_cluster_dir": str(clusters / name),
                "deepops_all_have_addresses": all(node.address for node in cluster.nodes),
                **self.settings,
            },
        }
        answers = {
            "name": "What the nodes answered",
            "ansible.builtin.set_fact": {
                "cacheable": True,
                "deepops_cgroup": self.cgroup,
                "deepops_cgroup_writable": "{{ item not in without_cgroup }}",
                "node_common_result": {
                    "packages": {"slurmd": self.version},
                    "probes": {"slurmd": "{{ reports[item] | default('') }}", **({"pmix": ""} if self.pmix else {})},
                },
            },
            # one task for all of them: a task of Ansible's is a process for each host
            "loop": [node.name for node in cluster.nodes],
            "delegate_to": "{{ item }}",
            "delegate_facts": True,
            "vars": {"without_cgroup": list(self.without_cgroup), "reports": dict(self.reports)},
        }
        role = {
            "name": "Gather and render",
            "ansible.builtin.include_role": {"name": "slurm_conf"},
            "vars": wiring("slurm_conf"),
        }
        show = {
            "name": f"Show {name}",
            "ansible.builtin.debug": {"msg": SHOWN},
            "vars": {key: value for role in TEMPLATES for key, value in wiring(role).items()},
        }
        return [
            {"name": f"Nodes of {name}", "hosts": [cluster.nodes[0].name], "tasks": [answers], **common},
            {"name": name, "hosts": few, "tasks": [role, show], **common},
        ]


def defaults() -> dict[str, object]:
    """The defaults of the roles whose templates are rendered without them; to be variables of the hosts."""
    return {key: value for role in TEMPLATES for key, value in load(f"roles/{role}/defaults/main.yml").items()}


def wiring(role: str) -> dict[str, Any]:
    """The variables that playbooks/slurm.yml passes to a role."""
    call, *others = (call for call in role_calls("playbooks/slurm.yml") if call["role"] == role)
    assert all(other == call for other in others), f"{role} is called in two ways"
    return {key: value for key, value in call.items() if key.startswith(f"{role}_")}


# Templates that other roles hand to node_state themselves.
TEMPLATES = {
    "node_common": ("chrony.conf", "hosts"),
    "slurmd": ("slurmd.default",),
    "slurmdbd": ("slurmdbd.conf",),
}

SHOWN = {
    "slurm.conf": "{{ slurm_conf_files['slurm.conf'] }}",
    "gres.conf": "{{ slurm_conf_files['gres.conf'] }}",
    "cgroup.conf": "{{ slurm_conf_files['cgroup.conf'] }}",
    "topology.conf": "{{ slurm_conf_files['topology.conf'] }}",
    "plugstack.conf": "{{ slurm_conf_files['plugstack.conf'] }}",
    **{
        file: f"{{{{ lookup('ansible.builtin.template', 'roles/{role}/templates/{file}.j2') }}}}"
        for role, files in TEMPLATES.items()
        for file in files
    },
}

EXAMPLES = {name: (ROOT / "inventory" / name / "cluster.yml").read_text("utf-8") for name in EXAMPLE_NAMES}

CASES = {
    "one-dgx": Case(
        spec=EXAMPLES["one-dgx"],
        version=DEBIAN13,
        reports={"dgx1": DGX},
        settings={"slurm_plugstack": ["required /usr/local/lib/slurm/spank_pyxis.so"]},
    ),
    "university": Case(
        spec=EXAMPLES["university"],
        version=DEBIAN13,
        reports={
            **dict.fromkeys((f"a{number:02}" for number in range(1, 13)), WORKER),
            **dict.fromkeys((f"h{number:02}" for number in range(1, 7)), DGX),
        },
    ),
    "mixed-nodes": Case(
        spec=EXAMPLES["mixed"],
        version=DEBIAN12,
        reports={
            **dict.fromkeys((f"cpu{number:02}" for number in range(1, 33)), WORKER),
            **dict.fromkeys(("big1", "big2"), slurmd(2, 32, 1, 2063937)),
            **dict.fromkeys((f"gpu{number:02}" for number in range(1, 5)), WORKER),
            **dict.fromkeys(("hgx1", "hgx2"), DGX),
        },
    ),
    "mixed": Case(
        spec="""\
schema: 1
cluster: {name: mixed, user: ubuntu}
nodes:
  - {names: "ctl[1-2]", addresses: "192.0.2.[1-2]", roles: [controller]}
  - {names: login1, addresses: "192.0.2.3", roles: [login, dbd]}
  - {names: "a[1-2]", addresses: "192.0.2.[21-22]", roles: [compute], gpus: {type: a100, count: 1}}
  - {names: "h[1-3]", addresses: "192.0.2.37,192.0.2.[31-32]", roles: [compute], gpus: {type: h100, count: 4}}
  - {names: "cpu[01-12]", addresses: "192.0.2.[101-112]", roles: [compute], slurm: {Weight: 10}}
partitions:
  - {name: everything, nodes: all, default: true}
  - {name: gpu, nodes: "a[1-2],h[1-3]", max_time: "1-00:00:00", options: {DefMemPerGPU: 60000, PriorityTier: 5}}
  - {name: cpu, nodes: "cpu[01-12]", options: {state: DRAIN, OverSubscribe: "FORCE:2"}}
  - {name: later, nodes: cpu12}
""",
        version=DEBIAN12,
        # cpu11 has half the memory, cpu12 has never been reached
        reports={
            **dict.fromkeys(("a1", "a2"), WORKER),
            **dict.fromkeys(("h1", "h2", "h3"), DGX),
            **dict.fromkeys((f"cpu{number:02}" for number in range(1, 11)), WORKER),
            "cpu11": slurmd(2, 32, 1, 128000),
        },
        settings={
            "slurm_config": {
                "SlurmctldTimeout": 300,
                "slurmctldparameters": ["idle_on_node_suspend"],
                "MaxJobCount": 50000,
                "accountingstorageport": 16819,
                "EnforcePartLimits": True,
                "UnkillableStepTimeout": None,
            },
            "node_common_time_servers": ["ntp1.example.com", "ntp2.example.com"],
        },
    ),
    "unconfined": Case(
        spec="""\
schema: 1
cluster: {name: lab, user: ubuntu}
nodes:
  - {names: ctl1, addresses: "192.0.2.1", roles: [controller, compute], gpus: {count: 2}}
  - {names: n1, addresses: "192.0.2.2", roles: [compute], gpus: {count: 2}}
partitions:
  - {name: gpu, nodes: "ctl1,n1", default: true}
""",
        version=DEBIAN13,
        reports={"ctl1": VIRTUAL, "n1": VIRTUAL},
        without_cgroup=("n1",),
        settings={"slurm_confinement": "none"},
    ),
    "cpu-only": Case(
        spec="""\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: head, roles: [controller, login]}
  - {names: "n[1-2]", roles: [compute]}
partitions:
  - {name: cpu, nodes: "n[1-2]", default: true}
""",
        version=DEBIAN13,
        reports={"n1": VIRTUAL, "n2": slurmd(1, 8, 1, 15900)},
        cgroup="v1",
    ),
    "text-after-ranges": Case(
        spec="""\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: head, addresses: head.example.com, roles: [controller]}
  - {names: "n[1-3]", addresses: "n[1-3].example.com", roles: [compute]}
  - {names: "r[1-2]-a", addresses: "10.0.[1-2].5", roles: [compute], gpus: {type: a100, count: 2}}
  - {names: "r[1-2]x[1-2]-b", addresses: "192.0.2.[21-24]", roles: [compute]}
partitions:
  - {name: all, nodes: all, default: true}
  - {name: gpu, nodes: "n3,r[1-2]-a"}
""",
        version=DEBIAN12,
        reports=dict.fromkeys(("n1", "n2", "n3", "r1-a", "r2-a", "r1x1-b", "r1x2-b", "r2x1-b", "r2x2-b"), VIRTUAL),
    ),
    "ipv6": Case(
        spec="""\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: head, addresses: "2001:db8::1", roles: [controller]}
  - {names: "n[1-2]", addresses: "2001:db8::11,2001:db8::12", roles: [compute]}
""",
        version=DEBIAN13,
        reports=dict.fromkeys(("n1", "n2"), VIRTUAL),
        settings={"slurm_config": {"communicationparameters": "NoAddrCache"}},
    ),
    # what gres.conf has of other GPUs: tests/unit/gpus
    "gpus-gb200-nvl": Case(
        spec="""\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: head, roles: [controller, login]}
  - names: "nvl[01-36]"
    roles: [compute]
    gpus: {type: gb200, count: 4, cores: ["0-71", "0-71", "72-143", "72-143"]}
nvlink_domains:
  - {name: rack1, nodes: "nvl[01-18]"}
  - {name: rack2, nodes: "nvl[19-36]"}
""",
        version=DEBIAN13,
        reports=dict.fromkeys((f"nvl{number:02}" for number in range(1, 37)), slurmd(2, 72, 1, 870000)),
    ),
}
