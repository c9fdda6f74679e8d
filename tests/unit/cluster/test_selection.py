"""NODES on a command line."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.selection import select_compute, select_nodes
from deepopsctl.errors import InputError
from deepopsctl.model.cluster import Access, Cluster, Node, Role

CLUSTER = Cluster(
    "hpc",
    Access("ubuntu"),
    (
        Node("ctl1", frozenset({Role.CONTROLLER})),
        *(Node(f"gpu{number:02d}", frozenset({Role.COMPUTE})) for number in range(1, 5)),
    ),
    (),
)


def test_node_sets_are_expanded_and_each_node_comes_once() -> None:
    assert select_compute(["gpu[02-03]", "gpu03,gpu01"], CLUSTER) == ("gpu02", "gpu03", "gpu01")
    assert [node.name for node in select_nodes(["ctl1"], CLUSTER)] == ["ctl1"]


def test_an_unknown_name_is_refused_with_the_likely_one() -> None:
    with pytest.raises(InputError) as error:
        select_nodes(["gpu[04-05]", "gpu1"], CLUSTER)

    assert error.value.message == "NODES: the cluster has no node gpu[1,05]"
    assert error.value.hint == "did you mean gpu[01,04]? nodes: ctl1,gpu[01-04]"


def test_what_is_no_node_set_is_refused() -> None:
    with pytest.raises(InputError, match="NODES: "):
        select_nodes(["gpu[01"], CLUSTER)


def test_a_controller_has_nothing_to_drain() -> None:
    with pytest.raises(InputError, match="ctl1: no compute node"):
        select_compute(["ctl1,gpu01"], CLUSTER)
