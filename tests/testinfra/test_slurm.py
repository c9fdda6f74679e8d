"""Slurm as cluster.yml and hardware.yml describe it: one configuration everywhere, every node in service."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from deepopsctl.model.cluster import Role
from deepopsctl.node_programs.suites.validate_smoke import accounting, confinement, state
from tests.testinfra.collect import CONFIGURATION, FETCHED, WRITTEN, Live, Snapshot
from tests.testinfra.evaluation import accept, hardware_of, slurm_of, wanted_nodes, wanted_partitions


def test_slurmctld_and_slurmdbd_answer(live: Live) -> None:
    slurm, cluster = slurm_of(live), live.cluster.name
    database = accounting.answers(cluster, slurm.config, slurm.answers["clusters"])
    accept([*state.controller_checks(cluster, slurm), database])


def test_slurmctld_runs_the_configuration_that_is_on_its_disk(live: Live) -> None:
    # Slurm compares them itself
    assert not slurm_of(live).config.get("HASH_VAL", "Match").startswith("Different")


def test_slurm_has_the_compute_nodes_of_cluster_yml_and_no_others(live: Live) -> None:
    assert set(slurm_of(live).nodes) == set(live.names(Role.COMPUTE))


def test_it_has_fetched_the_controllers_configuration(live: Live, compute_node: Snapshot) -> None:
    written = live.snapshots[live.primary]
    if written.silence:
        pytest.skip(f"the controller {live.primary} does not answer")

    # a controller that is a compute node too reads its own files, and has fetched nothing
    config_dir = WRITTEN if compute_node.node in live.names(Role.CONTROLLER) and not _fetched(compute_node) else FETCHED
    assert {name: compute_node.file(config_dir / name).get("sha256") for name in CONFIGURATION} == {
        name: written.file(WRITTEN / name).get("sha256") for name in CONFIGURATION
    }


def _fetched(snapshot: Snapshot) -> bool:
    return bool(snapshot.file(FETCHED / "slurm.conf"))


def test_its_commands_read_the_controllers_configuration(live: Live, client: Snapshot) -> None:
    client_sha256, controller_sha256 = (
        snapshot.file(WRITTEN / "slurm.conf").get("sha256") for snapshot in (client, live.snapshots[live.primary])
    )

    assert client_sha256 is not None
    assert client_sha256 == controller_sha256


def test_its_commands_reach_the_controller(client: Snapshot) -> None:
    assert re.search(r"is UP$", client.out("ping"), re.MULTILINE), client.commands["ping"]


def test_the_same_slurm_is_installed_everywhere(live: Live) -> None:
    versions: dict[str, list[str]] = defaultdict(list)
    for snapshot in live.snapshots.values():
        if not snapshot.silence:
            versions[snapshot.out("version") or "none"].append(snapshot.node)

    assert len(versions) == 1, dict(versions)


def test_it_is_in_service_with_what_hardware_yml_has(live: Live, compute_node: Snapshot) -> None:
    slurm, wanted, name = slurm_of(live), wanted_nodes(live), compute_node.node

    accept(state.node_checks({name: wanted[name]}, slurm.nodes, {name: hardware_of(compute_node)}, reserved=False))


def test_partitions_are_as_declared(live: Live) -> None:
    slurm = slurm_of(live)

    accept(state.partition_checks(wanted_partitions(live), slurm.partitions, slurm.nodes))


def test_jobs_are_confined(live: Live) -> None:
    accept([confinement.configured(slurm_of(live).config, live.cluster.name)])
