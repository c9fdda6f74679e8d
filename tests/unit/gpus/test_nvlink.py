"""NVLink domains: in cluster.yml, in the inventory, in Slurm's configuration, and which package IMEX is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deepopsctl.cluster.editor import NewNodes, add_nodes, remove_nodes
from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.errors import InputError
from deepopsctl.gpus.driver_packages import plan_imex
from deepopsctl.model.cluster import NvlinkDomain
from deepopsctl.slurm.topology import domains_of, feature_of, refusal, settings, topology_lines
from tests.support.cluster_yml import faults
from tests.support.paths import ROOT

NODES = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: "192.0.2.1", roles: [controller]}
  - {names: "nvl[1-4]", addresses: "192.0.2.[11-14]", roles: [compute], gpus: {type: gb200, count: 4}}
  - {names: "h[1-2]", addresses: "192.0.2.[21-22]", roles: [compute], gpus: {type: h100, count: 8}}
  - {names: c1, addresses: "192.0.2.31", roles: [compute]}
"""
RACKS = """\
nvlink_domains:
  - {name: rack1, nodes: "nvl[1-2]"}
  - {name: rack2, nodes: "nvl[3-4]"}
"""


class TestClusterYml:
    def test_domains_are_read_written_and_handed_to_ansible(self) -> None:
        cluster = parse_spec(NODES + RACKS, "cluster.yml")
        inventory: Any = build_inventory(cluster)

        assert cluster.nvlink_domains == (
            NvlinkDomain("rack1", ("nvl1", "nvl2")),
            NvlinkDomain("rack2", ("nvl3", "nvl4")),
        )
        assert parse_spec(render_spec(cluster), "") == cluster
        assert inventory["all"]["vars"]["nvlink_domains"] == [
            {"name": "rack1", "nodes": "nvl[1-2]"},
            {"name": "rack2", "nodes": "nvl[3-4]"},
        ]

    def test_none_declared_is_not_the_same_as_an_empty_list(self) -> None:
        silent, empty = (parse_spec(NODES + text, "") for text in ("", "nvlink_domains: []\n"))

        assert (silent.nvlink_domains, empty.nvlink_domains) == (None, ())
        inventories: list[Any] = [build_inventory(cluster)["all"] for cluster in (silent, empty)]
        assert ["nvlink_domains" in part["vars"] for part in inventories] == [False, True]
        assert parse_spec(render_spec(empty), "") == empty

    @pytest.mark.parametrize(
        ("entries", "says"),
        [
            ('{name: a, nodes: "nvl[1-5]"}', "nodes: nvl[1-5] has no node nvl5"),
            ('{name: a, nodes: "nvl[1-4],nvl1"}', "names a node twice"),
            ('{name: a, nodes: "nvl[1-4],c1"}', "c1 without gpus"),
            ('{name: a, nodes: "nvl[1-4]"}, {name: b, nodes: nvl4}', "nvl4 also in a"),
            ('{name: a, nodes: "nvl[1-2]"}, {name: a, nodes: "nvl[3-4]"}', "a is already the name of a domain"),
            ('{name: "rack 1", nodes: "nvl[1-4]"}', "is not a name of a domain"),
            ('{name: a, nodes: "nvl[1-3]"}', "no domain has nvl4, whose GPUs have NVLink to other nodes"),
            ('{name: a, node: "nvl[1-4]"}', "unknown key"),
            ("{name: a, nodes: 'h[1-2', x: 1}", "unknown key"),
        ],
    )
    def test_what_can_not_be_is_refused_where_it_stands(self, entries: str, says: str) -> None:
        messages = faults(f"{NODES}nvlink_domains: [{entries}]\n")

        assert any(says in line for line in messages), messages
        assert all(line.startswith("cluster.yml:8 ") for line in messages), messages

    def test_a_node_goes_from_its_domain_and_a_new_one_comes_into_that_of_its_like(self) -> None:
        text = NODES + RACKS
        model = next(node for node in parse_spec(text, "").nodes if node.name == "nvl3")

        less = parse_spec(remove_nodes(text, ["nvl4"]), "")
        more = parse_spec(add_nodes(text, NewNodes((("nvl5", "192.0.2.15"),), model, like="nvl3")), "")

        assert less.nvlink_domains == (NvlinkDomain("rack1", ("nvl1", "nvl2")), NvlinkDomain("rack2", ("nvl3",)))
        assert more.nvlink_domains
        assert more.nvlink_domains[1] == NvlinkDomain("rack2", ("nvl3", "nvl4", "nvl5"))

    def test_the_last_node_of_a_domain_stays_until_the_domain_goes(self) -> None:
        with pytest.raises(InputError, match="the NVLink domain rack2 would have no node left"):
            remove_nodes(NODES + RACKS, ["nvl3", "nvl4"])


DOMAINS = domains_of([{"name": "rack1", "nodes": "nvl[1-2]"}, {"name": "rack2", "nodes": "nvl[3-4]"}])
ALL = ("nvl1", "nvl2", "nvl3", "nvl4")


class TestSlurm:
    def test_domains_that_take_in_all_nodes_are_blocks(self) -> None:
        assert settings(DOMAINS, ALL) == {"SwitchType": "switch/nvidia_imex", "TopologyPlugin": "topology/block"}
        assert topology_lines(DOMAINS, ALL) == [
            "BlockName=rack1 Nodes=nvl[1-2]",
            "BlockName=rack2 Nodes=nvl[3-4]",
            "BlockSizes=2",
        ]

    def test_nodes_that_no_deploy_has_reached_are_in_no_block(self) -> None:
        assert topology_lines(DOMAINS, ALL[:3]) == [
            "BlockName=rack1 Nodes=nvl[1-2]",
            "BlockName=rack2 Nodes=nvl3",
            "BlockSizes=1",
        ]
        assert topology_lines(DOMAINS, ALL[:2])[-2:] == ["BlockName=rack1 Nodes=nvl[1-2]", "BlockSizes=2"]

    def test_next_to_other_nodes_there_are_channels_and_features_and_no_blocks(self) -> None:
        assert settings(DOMAINS, (*ALL, "c1")) == {"SwitchType": "switch/nvidia_imex"}
        assert topology_lines(DOMAINS, (*ALL, "c1")) == []
        assert feature_of(DOMAINS)["nvl3"] == "nvlink_rack2"

    def test_without_domains_nothing_is_set(self) -> None:
        assert (settings({}, ALL), topology_lines({}, ALL), feature_of({})) == ({}, [], {})

    @pytest.mark.parametrize(
        ("version", "served"), [((22, 5), False), ((23, 11), False), ((24, 5), True), ((0, 0), True)]
    )
    def test_an_old_slurm_is_refused_with_the_version_that_it_takes(
        self, version: tuple[int, int], served: bool
    ) -> None:
        message = refusal(DOMAINS, version)

        assert (message == "") == served
        assert served or "24.05 and later" in message
        assert refusal({}, version) == ""


CATALOGUE = yaml.safe_load((ROOT / "group_vars/all/versions.yml").read_text("utf-8"))["deepops_nvidia_drivers"]


class TestImex:
    @pytest.mark.parametrize(
        ("driver", "source", "platform", "packages"),
        [
            ("580.95.05", "repository", "Debian 13", {"nvidia-imex": "580.95.05-*"}),
            ("580", "repository", "Ubuntu 24.04", {"nvidia-imex": "580.*"}),
            ("580.95.05", "distro", "Ubuntu 24.04", {"nvidia-imex-580": "580.95.05-*"}),
            ("580.95.05", "", "Debian 13", {}),
        ],
    )
    def test_it_comes_in_the_drivers_version_from_the_drivers_source(
        self, driver: str, source: str, platform: str, packages: dict[str, str]
    ) -> None:
        plan = plan_imex("rack1", driver, source, platform, CATALOGUE)

        assert (dict(plan.packages), plan.runs, plan.problems) == (packages, True, ())

    def test_a_node_in_no_domain_or_without_a_driver_has_none(self) -> None:
        for plan in (
            plan_imex("", "580", "distro", "Debian 13", CATALOGUE),
            plan_imex("rack1", "", "", "Debian 13", CATALOGUE),
        ):
            assert (dict(plan.packages), plan.runs, plan.problems) == ({}, False, ())

    def test_debians_own_driver_is_refused_with_what_to_do(self) -> None:
        ((message, hint),) = plan_imex("rack1", "550", "distro", "Debian 13", CATALOGUE).problems

        assert message == "Debian 13 packages no IMEX, which the NVLink domain rack1 needs"
        assert "nvidia_driver_source: repository" in hint
