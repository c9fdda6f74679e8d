"""Configuration files as Ansible renders them, compared with the ones in golden/, which are there to be read.

After a wanted change, write them again and review the diff before it is committed:

    DEEPOPSCTL_WRITE_GOLDEN=1 pytest tests/roles/test_rendered.py && git diff tests/roles/golden
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.cluster.inventory import group_members
from deepopsctl.cluster.spec import parse_spec
from tests.roles.cases import CASES, defaults
from tests.roles.content import load
from tests.support.local_ansible import Played, play
from tests.support.paths import ROOT

GOLDEN = Path(__file__).parent / "golden"
WRITE = bool(os.environ.get("DEEPOPSCTL_WRITE_GOLDEN"))

# Those with an NVLink domain; the others have no such file.
BLOCKS = ("gpus-gb200-nvl",)
# The cluster with the fewest settings: slurm.conf of all others is compared as its difference to this one's.
PLAIN = "cpu-only"
DIFFERENCE = "slurm.conf.diff"
# Golden file -> what is rendered, on which of the cluster's hosts (the first of a group), and for which clusters: of a
# file that few have or that is much the same for all, one for each way in which they differ.
FILES = {
    "slurm.conf": ("slurm.conf", "slurm_controller", (PLAIN,)),
    "gres.conf": ("gres.conf", "slurm_controller", tuple(CASES)),
    "cgroup.conf": ("cgroup.conf", "slurm_controller", ("one-dgx", "cpu-only", "unconfined")),
    "topology.conf": ("topology.conf", "slurm_controller", BLOCKS),
    "plugstack.conf": ("plugstack.conf", "slurm_controller", ("one-dgx",)),
    "slurmdbd.conf": ("slurmdbd.conf", "slurm_dbd", ("one-dgx", "mixed", "ipv6")),
    "chrony-server.conf": ("chrony.conf", "slurm_controller", ("cpu-only", "unconfined")),
    "chrony-client.conf": ("chrony.conf", "slurm_compute", ("one-dgx", "mixed")),
    "slurmd.default": ("slurmd.default", "slurm_compute", ("one-dgx", "cpu-only", "unconfined")),
    "hosts": ("hosts", "slurm_compute", ("cpu-only", "unconfined")),
}
GOLDEN_FILES = [
    *((case, file) for file, (_, _, cases) in FILES.items() for case in cases),
    *((case, DIFFERENCE) for case in CASES if case != PLAIN),
]

each_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All clusters in one run of Ansible."""
    directory = tmp_path_factory.mktemp("rendered")
    clusters = tmp_path_factory.mktemp("clusters")
    (directory / "roles").symlink_to(ROOT / "roles")
    hosts = {node.name: defaults() for case in CASES.values() for node in parse_spec(case.spec, "").nodes}
    plays = [play for name, case in CASES.items() for play in case.plays(name, clusters)]
    done = play(directory, plays, hosts)
    assert done.status == 0, done.output
    return done


def rendered(played: Played, case: str) -> Mapping[str, str]:
    """Golden file name -> text, for one cluster."""
    shown = {result.host: result.data["msg"] for result in played.results if result.task == f"Show {case}"}
    members = group_members(parse_spec(CASES[case].spec, ""))
    # the last compute node: in a cluster whose controller computes, the first is that
    texts = {
        golden: shown[members[group][-1 if group == "slurm_compute" else 0]][file]
        for golden, (file, group, _) in FILES.items()
    }
    if case != PLAIN:
        plain = rendered(played, PLAIN)["slurm.conf"]
        _, _, *lines = unified_diff(plain.splitlines(True), texts["slurm.conf"].splitlines(True), n=0)
        # its own nodes are in no other cluster
        left_out = ("@@", "-NodeName=", "-PartitionName=")
        texts[DIFFERENCE] = "".join(line for line in lines if not line.startswith(left_out))
    return texts


@pytest.mark.parametrize(("case", "file"), GOLDEN_FILES)
def test_it_is_rendered_as_in_golden(played: Played, case: str, file: str) -> None:
    text, golden = rendered(played, case)[file], GOLDEN / case / file
    if WRITE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")

    assert text == golden.read_text(encoding="utf-8")


@each_case
def test_hosts_with_the_same_confinement_agree_on_slurm_conf_and_its_generation(played: Played, case: str) -> None:
    shown = [result.data["msg"] for result in played.results if result.task == f"Show {case}"]

    assert len({texts["slurm.conf"] for texts in shown}) == 1
    assert len({texts["slurmd.default"].splitlines()[-1] for texts in shown}) == 1


@each_case
def test_only_clusters_with_nvlink_domains_have_blocks(played: Played, case: str) -> None:
    assert bool(rendered(played, case)["topology.conf"]) == (case in BLOCKS)


def test_ansible_warns_of_nothing(played: Played) -> None:
    assert "WARNING" not in played.output


def test_all_that_slurm_conf_refuses_is_reported_at_once(tmp_path: Path) -> None:
    good = {
        "__slurm_conf_several": False,
        "slurm_conf_domains": [],
        "slurm_conf_native_metrics": False,
        "slurm_conf_job_script": "",
        "slurm_conf_plugstack": [],
        "slurm_conf_oci_bundles": False,
        "slurm_conf_oci": {},
        "slurm_conf_job_directories": {"method": "namespace"},
    }
    bad = {**good, "slurm_conf_job_script": "x]==========]y", "slurm_conf_plugstack": ["include /etc/x"]}
    bundles = {**good, "slurm_conf_oci_bundles": True}
    twice = {**bundles, "slurm_conf_plugstack": ["required /usr/lib/pyxis/spank_pyxis.so"]}
    shared = {**bundles, "slurm_conf_job_directories": {}}
    computed = load("roles/slurm_conf/vars/main.yml")
    plays = [
        {
            "name": name,
            "hosts": "all",
            "gather_facts": False,
            "vars": {
                **values,
                "refusals": computed["__slurm_conf_refusals"],
                "__slurm_conf_oci_refusal": computed["__slurm_conf_oci_refusal"],
            },
            "tasks": [
                {"ansible.builtin.set_fact": {"cacheable": True, "slurm_version": version}},
                {"name": name, "ansible.builtin.debug": {"msg": "{{ refusals }}"}},
            ],
        }
        for name, version, values in (
            ("good", "24.11.5", good),
            ("bad", "24.11.5", bad),
            ("bundles", "24.11.5", bundles),
            ("twice", "24.11.5", twice),
            ("shared", "24.11.5", shared),
            ("elsewhere", "24.11.5", {**shared, "slurm_conf_oci": {"RunTimeRun": "/usr/sbin/runc run"}}),
            ("old", "22.05.8", bundles),
            ("unknown", "", bundles),
        )
    ]

    done = play(tmp_path, plays, {"a": {}})

    assert done.result("good").data["msg"] == done.result("bundles").data["msg"] == []
    assert done.result("unknown").data["msg"] == done.result("elsewhere").data["msg"] == []
    assert done.result("shared").data["msg"] == [
        "environment_containers has oci, which needs job_directories in cluster.yml: users would share its state"
    ]
    assert done.result("twice").data["msg"] == [
        "environment_containers has oci and pyxis: Slurm starts containers by one of them"
    ]
    assert done.result("old").data["msg"] == ["environment_containers has oci, which needs Slurm 23.02 or later"]
    first, second = done.result("bad").data["msg"]
    assert first.startswith("slurm_conf_job_script has the text ]==========]")
    assert second.startswith("slurm_plugstack has 'include /etc/x'")


def test_root_runs_nothing_in_directories_of_users_when_a_step_in_a_bundle_is_over() -> None:
    settings = load("roles/slurm_conf/vars/main.yml")["__slurm_conf_oci_settings"]

    assert "'RunTimeQuery': 'echo {}', 'RunTimeKill': '/bin/false', 'RunTimeDelete': '/bin/false'" in settings


@pytest.fixture(scope="module")
def worked_out(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Any]]:
    """Variables of two nodes with GPUs, of which slurmd detects those of the first; slurmctld has several ports."""
    declared = [
        {"names": "gpu1", "gpus": {"type": "h200", "count": 1, "autodetect": "nvml"}},
        {"names": "gpu2", "gpus": {"type": "h200", "count": 1}},
    ]
    facts = {"os_family": "Debian", "distribution": "Debian", "distribution_major_version": "13"}
    shown = {name: f"{{{{ {name} }}}}" for name in ("deepops_slurm_packages", "deepops_slurm_ports")}
    gpu_nodes = {
        "hosts": ["gpu1", "gpu2"],
        "gather_facts": False,
        "vars": {
            "slurm_nodes": declared,
            "slurm_controller_hosts": ["ctl1"],
            "slurm_config": {"slurmctldport": "6820-6823"},
        },
        "tasks": [
            {"ansible.builtin.set_fact": {"cacheable": True, **facts}},
            {"name": "Show", "ansible.builtin.debug": {"msg": shown}},
        ],
    }
    done = play(tmp_path_factory.mktemp("variables"), [gpu_nodes], {"gpu1": {}, "gpu2": {}})
    assert done.status == 0, done.output
    return {result.host: result.data["msg"] for result in done.results if result.task == "Show"}


def test_a_node_whose_gpus_slurmd_detects_gets_its_plugin(worked_out: Mapping[str, Mapping[str, Any]]) -> None:
    of_node = {node: set(variables["deepops_slurm_packages"]) for node, variables in worked_out.items()}

    assert of_node["gpu1"] - of_node["gpu2"] == {"slurm-wlm-nvml-plugin"}


def test_of_several_ports_of_slurmctld_the_first_is_asked(worked_out: Mapping[str, Mapping[str, Any]]) -> None:
    assert worked_out["gpu1"]["deepops_slurm_ports"] == {"slurmctld": "6820", "slurmd": 6818, "slurmdbd": 6819}
