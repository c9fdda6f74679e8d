"""What `validate monitoring` is told to expect of a cluster."""

from __future__ import annotations

from dataclasses import replace

from deepopsctl.monitoring import alert_routing, expected
from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.monitoring.targets import targets_of
from deepopsctl.slurm.native_metrics import PAGES
from tests.support.paths import ROOT

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"


def machine(name: str, address: str, *groups: str, **more: object) -> MonitoredNode:
    options = {"controller": "ctl1", "monitoring_host": "mon1", "secrets": {"web_password": "x"}}
    return MonitoredNode(name, "hpc", frozenset({"slurm_cluster", *groups}), address, **{**options, **more})  # type: ignore[arg-type]  # any of its fields


CLUSTER = (
    machine("ctl1", "192.0.2.1", "slurm_controller", "slurm_dbd"),
    machine("mon1", "192.0.2.2", "monitoring"),
    machine("gpu01", "192.0.2.11", "slurm_compute", "nvidia_gpu"),
)


def test_every_node_has_a_node_exporter_at_its_own_address() -> None:
    result = {(entry["node"], entry["job"]): entry["address"] for entry in expected.targets(CLUSTER)}

    for each in CLUSTER:
        assert result[each.name, "node"] == f"{each.address}:9100"
    assert {node for node, job in result if job in ("prometheus", "alertmanager")} == {"mon1"}


def test_slurmctlds_pages_are_targets_of_their_own_where_a_site_wants_it() -> None:
    on = {"slurm_native": True}
    first, second = (machine(f"ctl{n}", f"192.0.2.{n}", "slurm_controller", settings=on) for n in (1, 2))

    result = [entry for entry in expected.targets((first, second, *CLUSTER)) if entry["job"] == "slurm"]

    assert {entry["address"] for entry in result} == {"192.0.2.1:6817"}
    assert [entry["page"] for entry in result] == list(PAGES)
    elsewhere = replace(first, settings={**on, "slurmctld_port": "6820"})
    scraped = [target for target in targets_of(elsewhere) if target.exporter == "slurm"]
    assert {target.address for target in scraped} == {"192.0.2.1:6820"}
    assert [target.labels["__metrics_path__"] for target in scraped] == [f"/metrics/{page}" for page in PAGES]


def test_text_files_are_expected_where_their_programs_run() -> None:
    result = expected.textfiles(CLUSTER)

    assert "nodemetrics-jobs.prom" in result["gpu01"]
    assert "slurmmetrics.prom" in result["ctl1"]
    assert "slurmmetrics.prom" not in result["gpu01"]


def test_queries_that_need_a_job_are_marked_and_those_of_drained_nodes_are_not_asked() -> None:
    result = expected.asked("hpc", CLUSTER)

    assert {entry["job"] for entry in result} == {True, False}
    assert all("$" not in str(entry["text"]) for entry in result)


def test_the_trial_of_alerts_takes_a_way_that_alertmanager_has() -> None:
    everybody = {"people": {"email": ["ops@example.com"]}}
    mail = {"server": "192.0.2.9:25", "from": "hpc@example.com"}
    made = alert_routing.routing(alert_routing.Wanted(receivers=everybody, email=mail))
    way = expected.NOWHERE
    wanted = {"receiver": way["receiver"], "matchers": [f'{way["label"]}="{way["value"]}"']}

    assert list(made.routes).index(wanted) == 0, made


def test_it_says_where_the_servers_answer_and_no_secret() -> None:
    result = expected.everything(CLUSTER, RULES)

    assert (result["prometheus"], result["alertmanager"]) == ("http://192.0.2.2:9090", "http://192.0.2.2:9093")
    assert result["journals"] == ""
    assert "web_password" not in str(result)
