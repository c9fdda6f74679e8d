"""Which nodes are asked what at the end of a deploy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import node_modules as nodeside

filters = nodeside.plugin("filter", "slurm")

VERIFIED = {"step": "slurm_config", "version": "24.11.5", "credential": "MUNGE:x"}
PROOF = {"failed": False, "results": [{"step": "slurmctld"}, VERIFIED]}
TEXTS = {"slurm_conf_files": {"slurm.conf": "ClusterName=hpc\n", "gres.conf": "", "cgroup.conf": "x\n"}}
GATED = {"drift_check_result": {"clean": False}}


def test_files_are_expected_only_where_the_controller_was_verified() -> None:
    nodes = {"gpu01": TEXTS}

    tested = filters.slurm_fetched_files("ctl1", {"ctl1": {**GATED, "slurmctld_result": PROOF}, **nodes}, "gpu01")
    assert sorted(tested) == ["cgroup.conf", "slurm.conf"]
    assert all(len(digest) == 64 for digest in tested.values())
    assert filters.slurm_fetched_files("ctl1", {"ctl1": {}, **nodes}, "gpu01") == {}


def test_nodes_are_not_asked_to_agree_with_a_controller_that_failed() -> None:
    assert filters.slurm_is_reachable("ctl1", {"ctl1": {**GATED, "slurmctld_result": PROOF}})
    assert not filters.slurm_is_reachable("ctl1", {"ctl1": GATED})
    assert not filters.slurm_is_reachable("ctl1", {"ctl1": {**GATED, "slurmctld_result": {**PROOF, "failed": True}}})
    assert not filters.slurm_is_reachable("ctl1", {"ctl1": {**GATED, "slurmctld_result": {"results": []}}})
    # a run with --limit, without the controller
    assert filters.slurm_is_reachable("ctl1", {"ctl1": {}})


def test_only_nodes_without_work_are_asked_for_on_the_controller() -> None:
    clean = {"drift_check_result": {"clean": True}}
    hosts = {"gpu01": clean, "gpu02": GATED, "gpu03": {}, "gpu04": clean}

    # Slurm has gpu04 out of service: it was brought in
    assert filters.slurm_untouched_nodes(list(hosts), hosts, ["gpu02", "gpu04"]) == ["gpu01"]


def test_slurmd_is_reported_the_port_only_where_it_is_not_slurms_own() -> None:
    # slurmd takes what follows the first colon of a bare address for a port
    bare = filters.slurm_conf_servers(["ctl1", "192.0.2.1", "2001:db8::1"], 6817)
    assert bare == ["ctl1", "192.0.2.1", "[2001:db8::1]"]
    assert filters.slurm_conf_servers(["ctl1", "2001:db8::1"], "7000") == ["ctl1:7000", "[2001:db8::1]:7000"]


def test_a_munge_key_has_one_hash_however_its_base64_is_broken_into_lines() -> None:
    # printf key | sha256sum
    assert filters._munge_key_hash("a2V5") == "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"
    assert filters._munge_key_hash("a2\nV5\n") == filters._munge_key_hash("a2V5")


def test_a_node_whose_restore_has_not_ended_is_named() -> None:
    begun: dict[str, Any] = {"ctl1": {"drift_check_result": {"restore_begun": True}}}
    others: dict[str, Any] = {"cn01": {"drift_check_result": {"restore_begun": False}}, "silent": {}}

    assert filters.slurm_unrestored_nodes([*begun, *others], {**begun, **others}) == ["ctl1"]


def foreign_nodes(**slurms: dict[str, str]) -> Any:
    """What is said of nodes on which the gate found these."""
    hosts: dict[str, Any] = {name: {"drift_check_result": {"foreign": slurm}} for name, slurm in slurms.items()}
    hosts["silent"] = {}
    return filters.slurm_foreign_nodes(list(hosts), hosts, "Lab", "a2V5")


def test_nodes_with_the_same_foreign_slurm_are_named_together() -> None:
    old = {"what": "runs slurmd", "cluster": "old", "munge_key": filters._munge_key_hash("a2V5")}
    other_key = {"what": "has /etc/slurm/slurm.conf", "cluster": "", "munge_key": ""}
    managed = {**old, "cluster": "lab"}

    assert foreign_nodes(gpu01=old, gpu02=old, gpu03={}) == ["gpu[01-02] runs slurmd of the cluster old, not Lab"]
    assert foreign_nodes(gpu01=other_key, gpu02=managed) == [
        "gpu01 has /etc/slurm/slurm.conf with another munge key than this cluster's"
    ]


@pytest.mark.parametrize(
    ("extra", "needed"),
    [
        ({}, True),
        ({"accountingstorageenforce": ["limits", "nosteps"]}, True),
        ({"AccountingStorageEnforce": None}, False),
        ({"accountingstorageenforce": "nojobs"}, False),
    ],
)
def test_an_account_is_needed_unless_a_site_has_slurm_ask_for_none(extra: dict[str, object], needed: bool) -> None:
    assert filters.slurm_needs_account(extra) is needed


def test_limits_of_partitions_are_enforced_as_the_site_writes_it() -> None:
    settings: list[dict[str, object]] = [{}, {"enforcepartlimits": "any"}, {"EnforcePartLimits": None}]

    assert [filters.slurm_enforced(extra) for extra in settings] == ["all", "any", "no"]
