"""What is not a node list is reported, with what to give instead; and what looks like another form is read as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.imports.detect import Form, detect
from deepopsctl.imports.other_files import recognise
from deepopsctl.imports.read import draft_text
from deepopsctl.imports.request import InitRequest, read_request
from deepopsctl.text.problems import Problems
from tests.support.files import write_files
from tests.support.paths import DATA
from tests.support.problems import problems_of

NODE = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=2
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.10
   Gres=gpu:a100:2
   OS=Linux 6.12.1 #1 SMP
"""
SAMPLES = {
    "the output of `scontrol show node`": [NODE, "NodeName=n1 Arch=x86_64 CPUAlloc=0 CPUTot=2 OS=Linux 6.1\n"],
    "the output of `scontrol show partition`": [
        "PartitionName=p\n   AllowGroups=ALL Default=YES QoS=N/A\n   State=UP TotalCPUs=4 TotalNodes=2\n"
    ],
    "the output of `scontrol show config`": [
        "Configuration data as of 2026-01-01T00:00:00\nAccountingStorageHost = localhost\nClusterName    = t\n"
    ],
    "the output of `scontrol show job`": ["JobId=12 JobName=x\n   UserId=a(1000) GroupId=a(1000) NodeList=n1\n"],
    "a file of `sacctmgr dump`": [
        "# To edit this file start with a cluster line\nCluster - 't':Fairshare=1\nParent - 'root'\nUser - 'root':x=1\n"
    ],
    "gres.conf": [
        "AutoDetect=nvml\n",
        "NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1]\n",
        "# x\nName=gpu File=/dev/nvidia0\n",
    ],
    "the output of `sinfo`": [
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\np*           up   infinite      2   idle n[1-2]\n",
        "p*           up   infinite      2   idle n[1-2]\nq up 1-00:00:00 1 drain* n3\n",
        "NODELIST   NODES PARTITION STATE\nn1             1        p* idle\n",
    ],
    "the output of `squeue`": [
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n 1 p x a R 0:01 1 n1\n"
    ],
    "the output of `sacct`": ["JobID           JobName  Partition  Account  AllocCPUS  State\n1 x p a 1 FAILED\n"],
    "slurmdbd.conf": ["DbdHost=ctl1\nStorageType=accounting_storage/mysql\nStoragePass=secret\n"],
    "cgroup.conf": ["ConstrainCores=yes\nConstrainDevices=yes\n"],
    "topology.conf": ["SwitchName=s1 Nodes=n[1-2]\n"],
}  # fmt: skip


@pytest.mark.parametrize(("what", "text"), [(what, text) for what, texts in SAMPLES.items() for text in texts])
def test_it_is_named_with_what_to_give_instead(tmp_path: Path, what: str, text: str) -> None:
    write_files(tmp_path, {"given": text})

    (problem,) = problems_of(read_request, InitRequest(tmp_path / "new", source=tmp_path / "given"))

    assert problem.message == f"this is {what}, not a node list"
    assert "slurm.conf" in problem.hint
    assert "secret" not in problem.message + problem.hint


def test_hostnames_of_scontrol_are_a_list_of_nodes() -> None:
    draft = draft_text("n1\nn2\nn3\n", "hosts", Problems())

    assert list(draft.nodes) == ["n1", "n2", "n3"]


def test_no_slurm_conf_is_taken_for_anything_else() -> None:
    paths = [*(DATA / "sites").glob("*/slurm.conf"), *(DATA / "dumps").iterdir()]
    texts = {path: path.read_text("utf-8") for path in paths}

    assert len(paths) > 20
    assert [path for path, text in texts.items() if recognise(text, detect(text))] == []


@pytest.mark.parametrize("group", ["cluster", "nodes", "schema"])
def test_an_inventory_may_have_a_group_of_any_name(group: str) -> None:
    text = f"{group}:\n  hosts:\n    n1:\n  vars:\n    ansible_user: admin\nhead:\n  hosts:\n    n1:\n"

    assert detect(text) is Form.ANSIBLE_YAML


@pytest.mark.parametrize(
    "text",
    [
        "cluster:\n  name: hpc\nnodes:\n  - names: n1\n    hosts: x\n",
        "schema: 1\ncluster: {name: t}\nstorage:\n  - name: x\n    hosts: [n1]\n",
        "- names: n1\n  hosts:\n",
    ],
)
def test_a_cluster_yml_stays_one(text: str) -> None:
    assert detect(text) is Form.YAML


def test_an_address_in_an_inventory_has_a_hint_that_ansible_reads(tmp_path: Path) -> None:
    write_files(tmp_path, {"hosts.ini": "[controllers]\n192.0.2.1\n[workers]\n192.0.2.[11:12] rack=1\n"})
    groups = ("controller=controllers", "compute=workers")

    problems = problems_of(read_request, InitRequest(tmp_path / "new", source=tmp_path / "hosts.ini", group=groups))

    assert problems[0].hint == "write NAME ansible_host=192.0.2.1"
    assert all("ansible_host=" in problem.hint for problem in problems)


CONF = """\
ClusterName=t
ControlMachine=ctl1
ControlAddr={controller}
NodeName=n1 NodeAddr={node} CPUs=2
NodeName=n2 CPUs=2
PartitionName=p Nodes=n[1-2] Default=YES
"""
HOSTS = """\
198.51.100.1 ctl1
192.0.2.1 ctl1-data ctl1-data.example.com
192.0.2.11 n1
192.0.2.12 n2 N2-DATA
2001:db8::9 six
"""


@pytest.mark.parametrize(
    ("controller", "node", "addresses"),
    [
        ("ctl1-data", "n1.example.com", ["192.0.2.1", "192.0.2.11", "192.0.2.12"]),
        ("CTL1-DATA.example.com", "n2-data", ["192.0.2.1", "192.0.2.12", ""]),
        ("192.0.2.77", "gone.example.com", ["192.0.2.77", "gone.example.com", "192.0.2.12"]),
        ("2001:db8::5", "six", ["2001:db8::5", "2001:db8::9", "192.0.2.12"]),
    ],
)
def test_addresses_that_are_names_are_looked_up_too(
    tmp_path: Path, controller: str, node: str, addresses: list[str]
) -> None:
    write_files(tmp_path, {"slurm.conf": CONF.format(controller=controller, node=node), "hosts": HOSTS})
    request = InitRequest(tmp_path / "new", source=tmp_path / "slurm.conf", addresses=tmp_path / "hosts")
    if not addresses[-1]:
        assert "192.0.2.12" in problems_of(read_request, request)[0].message
        return

    assert [node.address for node in read_request(request).cluster.nodes] == addresses
