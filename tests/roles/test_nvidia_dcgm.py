"""What the role nvidia_dcgm makes of a node: packages, where they come from, and what it writes."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs.gpu_check.dcgm import SOCKET
from tests.roles.content import load
from tests.support.local_ansible import play
from tests.support.paths import ROOT

ROLE = ROOT / "roles" / "nvidia_dcgm"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the role makes of a node with an HGX board."""
    variables = {
        **load("roles/nvidia_dcgm/defaults/main.yml"),
        "nvidia_dcgm_catalogue": "{{ deepops_dcgm }}",
        "nvidia_dcgm_repositories": "{{ deepops_nvidia_drivers.repository }}",
        "nvidia_dcgm_repository_url": "https://mirror.example.com",
        "nvidia_dcgm_platform": "Debian 13",
        "nvidia_dcgm_driver": "580",
        "nvidia_dcgm_gpus": {"type": "h100", "count": 8},
    }
    template = f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/NAME.j2') }}}}"
    shown = {
        "plan": "{{ __nvidia_dcgm_plan }}",
        "url": "{{ __nvidia_dcgm_repository_url }}",
        **{name: template.replace("NAME", name) for name in ("preferences", "source", "unit.conf")},
    }
    internal = load("roles/nvidia_dcgm/vars/main.yml")
    task = {"name": "Look", "ansible.builtin.debug": {"msg": shown}}
    plays = [{"hosts": "all", "gather_facts": False, "vars": internal, "tasks": [task]}]
    done = play(tmp_path_factory.mktemp("dcgm"), plays, {"hgx": variables})
    assert done.status == 0, done.output
    return done.result("Look").data["msg"]


def test_an_hgx_node_gets_all_packages_of_one_version_from_the_mirror(planned: Any) -> None:
    assert set(planned["plan"]["packages"].values()) == {load("group_vars/all/versions.yml")["deepops_dcgm"]["version"]}
    assert list(planned["plan"]["packages"])[1] == "datacenter-gpu-manager-4-cuda13"
    assert planned["url"] == "https://mirror.example.com/debian13/{arch}/"
    assert "Package: datacenter-gpu-manager-4-*\nPin: version 1:" in planned["preferences"]
    assert "Pin: release l=NVIDIA CUDA\nPin-Priority: -1" in planned["source"]
    assert "deepopsctl-mig.service" in planned["unit.conf"]
    # where its clients connect to it, and no port
    assert f"--domain-socket {SOCKET}\n" in planned["unit.conf"]
