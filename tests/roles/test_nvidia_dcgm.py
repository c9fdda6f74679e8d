"""What the role nvidia_dcgm makes of a node: packages, where they come from, and what it writes."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs.gpu_check.dcgm import SOCKET
from tests.roles.content import load
from tests.support.local_ansible import Played, play
from tests.support.paths import ROOT

ROLE = ROOT / "roles" / "nvidia_dcgm"
# name -> the role's parameters in the playbook
CASES: dict[str, dict[str, Any]] = {
    "hgx": {"platform": "Debian 13", "driver": "580", "gpus": {"type": "h100", "count": 8}},
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All cases in one run of Ansible."""
    hosts_vars = {
        "nvidia_dcgm_catalogue": "{{ deepops_dcgm }}",
        "nvidia_dcgm_repositories": "{{ deepops_nvidia_drivers.repository }}",
        "nvidia_dcgm_repository_url": "https://mirror.example.com",
    }
    hosts = {
        name: {
            **load("roles/nvidia_dcgm/defaults/main.yml"),
            **hosts_vars,
            **{f"nvidia_dcgm_{key}": value for key, value in case.items()},
        }
        for name, case in CASES.items()
    }
    template = f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/NAME.j2') }}}}"
    shown = {
        "plan": "{{ __nvidia_dcgm_plan }}",
        "url": "{{ __nvidia_dcgm_repository_url }}",
        **{name: template.replace("NAME", name) for name in ("preferences", "source", "unit.conf")},
    }
    tasks = [{"name": "Look", "ansible.builtin.debug": {"msg": shown}}]
    internal = {
        key: value
        for key, value in load("roles/nvidia_dcgm/vars/main.yml").items()
        # its templates are shown by their own path
        if key != "__nvidia_dcgm_files"
    }
    done = play(
        tmp_path_factory.mktemp("dcgm"),
        [{"hosts": "all", "gather_facts": False, "vars": internal, "tasks": tasks}],
        hosts,
    )
    assert done.status == 0, done.output
    return done


def of(played: Played, case: str) -> Any:
    """What a case came to."""
    (result,) = (result for result in played.results if result.host == case)
    return result.data["msg"]


def test_an_hgx_node_gets_all_packages_of_one_version_from_the_mirror(played: Played) -> None:
    planned = of(played, "hgx")

    assert set(planned["plan"]["packages"].values()) == {load("group_vars/all/versions.yml")["deepops_dcgm"]["version"]}
    assert list(planned["plan"]["packages"])[1] == "datacenter-gpu-manager-4-cuda13"
    assert planned["url"] == "https://mirror.example.com/debian13/{arch}/"
    assert "Package: datacenter-gpu-manager-4-*\nPin: version 1:" in planned["preferences"]
    assert "Pin: release l=NVIDIA CUDA\nPin-Priority: -1" in planned["source"]
    assert "deepopsctl-mig.service" in planned["unit.conf"]
    # where its clients connect to it, and no port
    assert f"--domain-socket {SOCKET}\n" in planned["unit.conf"]
