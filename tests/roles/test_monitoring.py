"""Monitoring as its playbook and the product's variables call it: what each node gets, rendered by real Ansible."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import jinja2.nativetypes
import pytest
from ansible.module_utils.parsing.convert_bool import boolean

from deepopsctl.certificates.authority import new_authority
from tests.roles.content import load, role_calls, steps_of
from tests.support.local_ansible import Played, play
from tests.support.paths import ROOT

ROLES = ("monitoring_node", "prometheus", "alertmanager")
GROUPS = {
    "slurm_controller": ["ctl1"],
    "slurm_dbd": ["ctl1"],
    "slurm_compute": ["gpu01", "gpu02"],
    "monitoring": ["ctl1"],
    "nvidia_gpu": ["gpu01", "gpu02"],
}
# on one of them DCGM is wanted
OF_HOSTS = {"gpu02": {"nvidia_dcgm": True}}
CLUSTER: dict[str, Any] = {
    "deepops_cluster_name": "hpc",
    "deepops_addresses": [{"names": "ctl1,gpu[01-02]", "addresses": "192.0.2.1,192.0.2.[11-12]"}],
    "slurm_nodes": [{"names": "gpu01", "gpus": {"type": "a100", "count": 2}}, {"names": "gpu02"}],
    "grafana_enabled": False,
    "monitoring_web_password": "correct-horse-battery-staple",
    "cluster_authority": new_authority(date(2026, 11, 1)),
    "deepops_platform": "Debian 13",
}


def wanted(role: str, **changes: object) -> dict[str, Any]:
    """A task that shows the plan of a role, as playbooks/monitoring.yml passes its variables."""
    (call,) = (call for call in role_calls("playbooks/monitoring.yml") if call["role"] == role)
    params = {key: value for key, value in call.items() if key.startswith(f"{role}_")}
    return {
        "name": f"{role} {', '.join(changes)}".strip(),
        "ansible.builtin.debug": {"msg": f"{{{{ __{role}_plan }}}}"},
        "vars": {**load(f"roles/{role}/vars/main.yml"), "role_path": str(ROOT / "roles" / role), **params, **changes},
    }


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The plans of three nodes, with and without monitoring."""
    hosts = sorted({name for names in GROUPS.values() for name in names})
    member = [
        {"host": host, "groups": ["slurm_cluster", *(group for group, names in GROUPS.items() if host in names)]}
        for host in hosts
    ]
    groups = {
        "name": "Groups",
        "ansible.builtin.add_host": {"name": "{{ item.host }}", "groups": "{{ item.groups }}"},
        "loop": member,
        "run_once": True,
    }
    tasks = [wanted(role) for role in ROLES]
    tasks += [wanted(role, **{f"{role}_wanted": False}) for role in ROLES]
    plays = [
        {"name": "Groups", "hosts": "all", "gather_facts": False, "tasks": [groups]},
        {"name": "Plans", "hosts": "slurm_cluster", "gather_facts": False, "tasks": tasks},
    ]
    results = play(
        tmp_path_factory.mktemp("monitoring"), plays, {host: {**CLUSTER, **OF_HOSTS.get(host, {})} for host in hosts}
    )
    assert results.status == 0, results.output
    return results


def plan(played: Played, role: str, host: str) -> dict[str, Any]:
    """The plan of a role for a node."""
    (result,) = (result for result in played.results if (result.task, result.host) == (role, host))
    planned: dict[str, Any] = result.data["msg"]
    return planned


@pytest.mark.parametrize(("host", "gpus"), [("gpu01", ["0", "1"]), ("gpu02", [])])
def test_a_compute_node_gets_its_gpus_in_slurms_order(played: Played, host: str, gpus: list[str]) -> None:
    files = {file["path"]: file for file in plan(played, "monitoring_node", host)["files"]}

    settings = json.loads(files["/etc/deepopsctl/nodemetrics.json"]["content"])
    assert settings["collectors"]["jobs"]["gpus"] == gpus


def test_every_node_gets_an_exporter_on_its_own_address(played: Played) -> None:
    for host, address in (("ctl1", "192.0.2.1"), ("gpu01", "192.0.2.11"), ("gpu02", "192.0.2.12")):
        planned = plan(played, "monitoring_node", host)

        assert "prometheus-node-exporter" in planned["packages"]
        assert any(f"--web.listen-address={address}:9100" in file.get("content", "") for file in planned["files"])
        assert planned["problems"] == []
        # what a package would start before its configuration is there
        assert set(planned["hold_units"]) == {unit["name"] for unit in planned["units"] if unit.get("running", True)}


def test_only_the_database_is_watched_by_its_own_exporter(played: Played) -> None:
    having = [
        host
        for host in ("ctl1", "gpu01", "gpu02")
        if "prometheus-mysqld-exporter" in plan(played, "monitoring_node", host)["packages"]
    ]

    assert having == ["ctl1"]


def test_all_nodes_are_in_the_one_file_of_targets(played: Played) -> None:
    files = {file["path"]: file for file in plan(played, "prometheus", "ctl1")["files"]}
    targets = files["/etc/prometheus/targets/deepops.yml"]["content"]

    assert [address for address in ("192.0.2.1:9100", "192.0.2.11:9100", "192.0.2.12:9100") if address in targets]
    assert "__exporter: mysqld" in targets
    assert {path.name for path in (ROOT / "roles/prometheus/files/rules").glob("*.yml")} == {
        path.rpartition("/")[2] for path in files if path.startswith("/etc/prometheus/rules/")
    }


def test_a_node_with_gpus_has_the_exporter_that_goes_with_its_settings(played: Played) -> None:
    exporters = {
        host: [
            unit["name"] for unit in plan(played, "monitoring_node", host)["units"] if unit.get("port") in (9400, 9401)
        ]
        for host in ("ctl1", "gpu01", "gpu02")
    }

    assert exporters == {"ctl1": [], "gpu01": ["deepops-gpumetrics.service"], "gpu02": ["nvidia-dcgm-exporter.service"]}


def test_prometheus_knows_of_each_node_which_exporter_has_its_gpus(played: Played) -> None:
    files = {file["path"]: file for file in plan(played, "prometheus", "ctl1")["files"]}
    lines = files["/etc/prometheus/targets/deepops.yml"]["content"].splitlines()

    assert [("192.0.2.11:9401" in line, "192.0.2.12:9400" in line) for line in lines if "__exporter: gpu" in line] == [
        (True, False),
        (False, True),
    ]


def test_the_password_is_in_no_content_that_is_shown(played: Played) -> None:
    plans = [plan(played, role, host) for role in ROLES for host in ("ctl1", "gpu01")]
    shown = [
        file
        for plan_of_host in plans
        for file in plan_of_host.get("files", [])
        if CLUSTER["monitoring_web_password"] in str(file)
    ]

    assert shown == []
    assert any("secret_base64" in file for plan_of_host in plans for file in plan_of_host.get("files", []))


@pytest.mark.parametrize("role", ROLES)
def test_what_is_not_wanted_is_nothing(played: Played, role: str) -> None:
    assert plan(played, f"{role} {role}_wanted", "ctl1") == {}


def expected(host: str, **variables: object) -> list[str]:
    """The steps that the gate expects on a node."""
    expression = load("group_vars/all/monitoring.yml")["deepops_monitoring_steps"]
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters["bool"] = boolean
    known = {"monitoring_enabled": True, "grafana_enabled": False, "monitoring_host": "ctl1", **variables}
    known = {"deepops_gpu_exporter": {"exporter": "none"}, **known}
    return list(environment.from_string(expression).render(known, inventory_hostname=host))


def test_the_gate_expects_what_is_recorded() -> None:
    assert set(expected("gpu01")) == steps_of("monitoring_node")
    assert set(expected("ctl1")) == set().union(*(steps_of(role) for role in ROLES))
    assert expected("ctl1", monitoring_enabled=False) == expected("ctl1", monitoring_enabled="false") == []
    assert not {"grafana", "grafana_admin"} & set(expected("ctl1", grafana_enabled="no"))


@pytest.mark.parametrize(("exporter", "step"), [("dcgm", "gpu_packages"), ("nvitop", "gpu_libraries")])
def test_the_gate_expects_what_a_gpu_exporter_runs_on(exporter: str, step: str) -> None:
    of_gpus = set(expected("gpu01", deepops_gpu_exporter={"exporter": exporter})) - steps_of("monitoring_node")

    assert of_gpus == {step}
    assert step in steps_of("gpu_exporter")
