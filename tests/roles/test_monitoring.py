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
from tests.support.recorded_roles import Asked, Recorded, record

SERVERS = ("prometheus", "alertmanager", "grafana")
ROLES = ("monitoring_node", *SERVERS)
PORT = 9999
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
    "grafana_admin_password": "admin-secret",
    "prometheus_port": PORT,
    "monitoring_node_job_summaries": True,
    "drift_check_result": {"recorded": []},
    "monitoring_web_password": "correct-horse-battery-staple",
    "cluster_authority": new_authority(date(2026, 11, 1)),
    "deepops_platform": "Debian 13",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The roles as playbooks/monitoring.yml calls them, on three nodes."""
    calls = {call["role"]: dict(call) for call in role_calls("playbooks/monitoring.yml") if call["role"] in ROLES}
    for role in SERVERS:
        calls[role]["when"] = "inventory_hostname == monitoring_host"
    hosts = sorted({name for names in GROUPS.values() for name in names})
    return record(
        tmp_path_factory.mktemp("monitoring"),
        [calls[role] for role in ROLES],
        {host: {**CLUSTER, **OF_HOSTS.get(host, {})} for host in hosts},
        GROUPS,
        modules=("node_state", "apt_source", "grafana_admin"),
    )


def node(recorded: Recorded, host: str) -> Asked:
    return recorded.step(host, "node")


@pytest.mark.parametrize(("host", "gpus"), [("gpu01", ["0", "1"]), ("gpu02", [])])
def test_a_compute_node_gets_its_gpus_in_slurms_order(recorded: Recorded, host: str, gpus: list[str]) -> None:
    settings = json.loads(node(recorded, host).texts()["/etc/deepopsctl/nodemetrics.json"])

    assert settings["collectors"]["jobs"]["gpus"] == gpus


def test_only_the_database_is_watched_by_its_own_exporter(recorded: Recorded) -> None:
    hosts = ("ctl1", "gpu01", "gpu02")

    assert [host for host in hosts if "prometheus-mysqld-exporter" in node(recorded, host).packages] == ["ctl1"]


def test_all_nodes_are_in_the_one_file_of_targets_with_the_exporter_that_has_their_gpus(recorded: Recorded) -> None:
    text = recorded.step("ctl1", "prometheus").texts()["/etc/prometheus/targets/deepops.yml"]
    of_gpus = [line for line in text.splitlines() if "__exporter: gpu" in line]

    assert all(address in text for address in ("192.0.2.1:9100", "192.0.2.11:9100", "192.0.2.12:9100"))
    assert "__exporter: mysqld" in text
    assert [("192.0.2.11:9401" in line, "192.0.2.12:9400" in line) for line in of_gpus] == [
        (True, False),
        (False, True),
    ]


def test_a_node_with_gpus_has_the_exporter_that_goes_with_its_settings(recorded: Recorded) -> None:
    exporters = {
        host: [unit["name"] for unit in node(recorded, host).units if unit.get("port") in (9400, 9401)]
        for host in ("ctl1", "gpu01", "gpu02")
    }

    assert exporters == {"ctl1": [], "gpu01": ["deepops-gpumetrics.service"], "gpu02": ["nvidia-dcgm-exporter.service"]}


def test_a_port_that_a_site_changes_is_changed_for_all_that_use_it(recorded: Recorded) -> None:
    servers = {step: recorded.step("ctl1", step) for step in SERVERS}
    sources = servers["grafana"].texts()["/etc/grafana/provisioning/datasources/deepopsctl.yaml"]
    targets = servers["prometheus"].texts()["/etc/prometheus/targets/deepops.yml"]

    assert recorded.failures == {}
    assert [unit["port"] for unit in servers["prometheus"].units] == [PORT]
    assert f'url: "http://192.0.2.1:{PORT}"' in sources
    assert f'"192.0.2.1:{PORT}"' in targets
    assert json.loads(node(recorded, "ctl1").texts()["/etc/deepopsctl/job-summaries.json"])["url"].endswith(f":{PORT}")


def test_grafana_has_prometheus_scrape_interval(recorded: Recorded) -> None:
    sources = recorded.step("ctl1", "grafana").texts()["/etc/grafana/provisioning/datasources/deepopsctl.yaml"]

    assert f'timeInterval: "{load("group_vars/all/monitoring.yml")["prometheus_scrape_interval"]}"' in sources


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
    assert set(expected("ctl1", grafana_enabled=True)) == set().union(*(steps_of(role) for role in ROLES))
    assert expected("ctl1", monitoring_enabled=False) == expected("ctl1", monitoring_enabled="false") == []
    assert not {"grafana", "grafana_admin"} & set(expected("ctl1", grafana_enabled="no"))


@pytest.mark.parametrize(("exporter", "step"), [("dcgm", "gpu_packages"), ("nvitop", "gpu_libraries")])
def test_the_gate_expects_what_a_gpu_exporter_runs_on(exporter: str, step: str) -> None:
    of_gpus = set(expected("gpu01", deepops_gpu_exporter={"exporter": exporter})) - steps_of("monitoring_node")

    assert of_gpus == {step}
    assert step in steps_of("gpu_exporter")
