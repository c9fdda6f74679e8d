"""The roles cuda, nvidia_container and nvidia_dcgm, by Ansible: parameters, files, and what the gate expects."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs.suites.gpu_check.dcgm import SOCKET
from tests.data.driver_samples import SET_PLATFORM, facts, platform
from tests.roles.content import load, role_calls
from tests.support.local_ansible import Played, play
from tests.support.paths import ROOT

PRESENT = facts(2, loaded={"version": "550.163.01", "open": True}, library="550.163.01")
BOTH = ["12.8", "13.0"]
FROM_DEBIAN = {"cuda_toolkits": ["12.4"], "cuda_source": "distro"}
ROLES = ("cuda", "nvidia_container", "nvidia_dcgm")
MIRRORED_DCGM = {
    "nvidia_dcgm": True,
    "nvidia_dcgm_catalogue": "{{ deepops_dcgm }}",
    "nvidia_dcgm_repositories": "{{ deepops_nvidia_drivers.repository }}",
    "nvidia_driver_repository_url": "https://mirror.example.com",
    "nvidia_dcgm_platform": "Debian 13",
    "nvidia_dcgm_driver": "580",
    "nvidia_dcgm_gpus": {"type": "h100", "count": 8},
}

# name -> distribution and version, groups, what the driver's role found there (None: not queried), settings
CASES: dict[str, tuple[str, str, list[str], dict[str, Any] | None, dict[str, Any]]] = {
    "gpu-repository": ("Debian", "12", ["nvidia_gpu"], facts(2), {"cuda_toolkits": BOTH}),
    "gpu-present": ("Ubuntu", "24.04", ["nvidia_gpu"], PRESENT, {"cuda_toolkits": BOTH}),
    "gpu-distro": ("Debian", "13", ["nvidia_gpu"], facts(2), {"nvidia_driver_source": "distro", **FROM_DEBIAN}),
    "gpu-mixed": ("Debian", "13", ["nvidia_gpu"], facts(2), FROM_DEBIAN),
    "gpu-unset": ("Debian", "13", ["nvidia_gpu"], facts(2), {}),
    "login": ("Debian", "12", ["slurm_login"], None, {"cuda_toolkits": BOTH}),
    "login-off": ("Debian", "12", ["slurm_login"], None, {"cuda_toolkits": BOTH, "cuda_login_nodes": False}),
    "login-unset": ("Debian", "12", ["slurm_login"], None, {"nvidia_container_toolkit": True}),
    "containers": ("Debian", "12", ["nvidia_gpu"], facts(1), {"nvidia_container_toolkit": True}),
    "hgx": ("Debian", "13", ["nvidia_gpu"], facts(8), MIRRORED_DCGM),
}
DRIVER = {"gpu-repository": "580", "gpu-present": "550.163.01", "gpu-distro": "550", "gpu-mixed": "580", "login": ""}
ON_GPU_NODES = ["sources", "packages", "driver", "services", "mig", "rdma", "in_service"]
STEPS = {
    "gpu-unset": ON_GPU_NODES,
    "login": ["cuda_source", "cuda"],
    "login-off": ["cuda_source", "cuda"],
    "login-unset": [],
    "containers": [*ON_GPU_NODES, "container_source", "container_packages", "container"],
}


def template(role: str, name: str) -> str:
    return f"{{{{ lookup('ansible.builtin.template', '{ROOT}/roles/{role}/templates/{name}.j2') }}}}"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All cases in one run of Ansible."""
    # as a play has them: the defaults of its roles; and as a role has them: its vars, and what the play passes
    internal: dict[str, Any] = {}
    for role in ROLES:
        internal |= load(f"roles/{role}/vars/main.yml")
    for call in role_calls("playbooks/nvidia.yml"):
        internal |= {key: value for key, value in call.items() if key.startswith(("cuda_", "nvidia_container_"))}
    hosts = {
        name: {
            **load("roles/nvidia_driver/defaults/main.yml"),
            **{key: value for role in ROLES for key, value in load(f"roles/{role}/defaults/main.yml").items()},
            "slurm_nodes": [],
            **settings,
            **({} if node is None else {"nvidia_driver_info_result": {"nvidia": node}}),
            "groups_of_it": groups,
            "platform": platform(distribution, version),
        }
        for name, (distribution, version, groups, node, settings) in CASES.items()
    }
    shown = {
        "Driver": "{{ deepops_nvidia_driver }}",
        "Steps": "{{ deepops_nvidia_steps }}",
        "Plan": "{{ __cuda_plan if cuda_toolkits is defined else {} }}",
        "Address": "{{ __cuda_repository_url if cuda_toolkits is defined and __cuda_repository | length > 0 else '' }}",
        "Adds": "{{ __cuda_adds if cuda_toolkits is defined else '' }}",
        "Pins": template("nvidia_container", "preferences"),
    }
    of_dcgm = {
        "plan": "{{ __nvidia_dcgm_plan }}",
        "url": "{{ __nvidia_dcgm_repository_url }}",
        **{name: template("nvidia_dcgm", name) for name in ("preferences", "source", "unit.conf")},
    }
    tasks: list[dict[str, Any]] = [
        SET_PLATFORM,
        {"name": "Groups", "ansible.builtin.group_by": {"key": "{{ item }}"}, "loop": "{{ groups_of_it }}"},
        *({"name": name, "ansible.builtin.debug": {"msg": text}} for name, text in shown.items()),
        {"name": "DCGM", "ansible.builtin.debug": {"msg": of_dcgm}, "when": "nvidia_dcgm_catalogue is defined"},
    ]
    directory = tmp_path_factory.mktemp("cuda")
    done = play(directory, [{"hosts": "all", "gather_facts": False, "vars": internal, "tasks": tasks}], hosts)
    assert done.status == 0, done.output
    return done


def of(played: Played, task: str, case: str) -> Any:
    """What a task showed for a case."""
    return played.on(case).result(task).data["msg"]


@pytest.mark.parametrize("case", DRIVER)
def test_toolkits_are_held_against_the_driver_that_the_node_has_or_gets(played: Played, case: str) -> None:
    assert of(played, "Driver", case)["version"] == DRIVER[case]


@pytest.mark.parametrize("case", STEPS)
def test_the_gate_expects_what_was_asked_for(played: Played, case: str) -> None:
    assert of(played, "Steps", case) == STEPS[case]


def test_a_node_gets_packages_module_files_and_a_way_to_see_them_and_a_login_node_none_where_that_is_set(
    played: Played,
) -> None:
    plan, off = of(played, "Plan", "gpu-repository"), of(played, "Plan", "login-off")

    assert plan["problems"] == []
    assert of(played, "Plan", "login")["packages"] == plan["packages"]
    assert plan["packages"] == {"cuda-toolkit-12-8": "", "cuda-toolkit-13-0": ""}
    assert [file["path"] for file in plan["files"]] == [
        "/opt/deepopsctl/modulefiles/cuda/12.8",
        "/opt/deepopsctl/modulefiles/cuda/13.0",
        "/opt/deepopsctl/modulefiles/cuda/.version",
        "/etc/profile.d/zz-deepopsctl-modules.sh",
    ]
    assert (off["packages"], off["by_hand"], off["files"], off["problems"]) == ({}, {}, [], [])


def test_nvidias_repository_is_added_where_the_driver_role_does_not_add_it(played: Played) -> None:
    address = "https://developer.download.nvidia.com/compute/cuda/repos/{0}/{{arch}}/"

    assert of(played, "Address", "login") == address.format("debian12")
    assert of(played, "Address", "gpu-present") == address.format("ubuntu2404")
    # the driver's role adds the same; a second time, apt would complain
    assert of(played, "Address", "gpu-repository") == of(played, "Adds", "gpu-repository") == ""
    assert of(played, "Adds", "gpu-distro") == ""
    assert of(played, "Adds", "gpu-mixed") == "distro"


def test_all_packages_for_containers_are_pinned_to_one_version(played: Played) -> None:
    catalogue = load("group_vars/all/versions.yml")["deepops_nvidia_container"]
    text = of(played, "Pins", "containers")

    assert f"Package: {' '.join(catalogue['packages'])}\nPin: version {catalogue['version']}\n" in text
    assert "libnvidia-container1" in text


def test_an_hgx_node_gets_all_packages_of_dcgm_in_one_version_from_the_mirror(played: Played) -> None:
    planned = of(played, "DCGM", "hgx")

    assert set(planned["plan"]["packages"].values()) == {load("group_vars/all/versions.yml")["deepops_dcgm"]["version"]}
    assert list(planned["plan"]["packages"])[1] == "datacenter-gpu-manager-4-cuda13"
    assert planned["url"] == "https://mirror.example.com/debian13/{arch}/"
    assert "Package: datacenter-gpu-manager-4-*\nPin: version 1:" in planned["preferences"]
    assert "Pin: release l=NVIDIA CUDA\nPin-Priority: -1" in planned["source"]
    assert "deepopsctl-mig.service" in planned["unit.conf"]
    # where its clients connect to it, and no port
    assert f"--domain-socket {SOCKET}\n" in planned["unit.conf"]


def test_pins_that_block_packages_come_after_those_that_select_them() -> None:
    wanted = {
        "nvidia_container": "__nvidia_container_preferences", "nvidia_driver": "__nvidia_driver_preferences",
        "cuda": "__cuda_preferences", "nvidia_dcgm": "__nvidia_dcgm_source_pins",
    }  # fmt: skip
    container, driver, *sources = (load(f"roles/{role}/vars/main.yml")[name] for role, name in wanted.items())

    # apt reads the files by name, and the first that matches a version counts
    assert container < driver < min(sources)
