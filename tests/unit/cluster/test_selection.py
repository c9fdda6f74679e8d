"""The nodes that a command line names."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.selection import Limit, resolve_limit, select_compute, select_names, select_nodes
from deepopsctl.errors import ExitCode, InputError
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
KNOWN = (
    "nodes: ctl1,gpu[01-04]; groups: all, monitoring, nfs_server, slurm_cluster, slurm_compute, slurm_controller, "
    "slurm_dbd, slurm_login"
)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["gpu[02-03]", "gpu03,gpu01"], ["gpu01", "gpu02", "gpu03"]),
        (["gpu[01,04], ctl1"], ["ctl1", "gpu01", "gpu04"]),
        (["slurm_controller,gpu03"], ["ctl1", "gpu03"]),
        (["slurm_cluster"], ["ctl1", "gpu01", "gpu02", "gpu03", "gpu04"]),
        ([], []),
    ],
)
def test_node_sets_and_groups_are_nodes_in_the_clusters_order(words: list[str], names: list[str]) -> None:
    assert [node.name for node in select_nodes(words, CLUSTER)] == names


def test_unknown_names_are_refused_with_the_likely_ones() -> None:
    with pytest.raises(InputError) as error:
        select_nodes(["gpu[04-05]", "gpu1,slurm_compte"], CLUSTER, "--option")

    assert error.value.message == "--option: the cluster has no node or group gpu[1,05],slurm_compte"
    assert error.value.hint == f"did you mean gpu[01,04],slurm_compute? {KNOWN}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu[01-", "bracket is not closed"),
        ("gpu[1-999999999]", "more than 100,000"),
        ("slurm_login", "slurm_login has no nodes"),
    ],
)
def test_what_names_no_node_is_refused_everywhere(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"NODES: .*{message}"):
        select_nodes([text], CLUSTER)
    with pytest.raises(InputError, match=f"--limit: .*{message}") as error:
        resolve_limit(text, CLUSTER)
    assert error.value.exit_code == ExitCode.INVALID_INPUT


def test_a_controller_has_nothing_to_drain() -> None:
    assert select_compute(["slurm_compute"], CLUSTER) == ("gpu01", "gpu02", "gpu03", "gpu04")
    with pytest.raises(InputError, match="ctl1: no compute node"):
        select_compute(["ctl1,gpu01"], CLUSTER)


def test_a_jump_host_may_be_named_where_host_keys_are_accepted() -> None:
    names = select_names(["gpu01,bastion.example.com"], CLUSTER, "--accept-new-keys", ["bastion.example.com"])
    assert names == {"gpu01", "bastion.example.com"}
    with pytest.raises(InputError, match="--accept-new-keys: the cluster has no node or group bastion2"):
        select_names(["bastion2"], CLUSTER, "--accept-new-keys", ["bastion.example.com"])


@pytest.mark.parametrize(
    ("text", "hosts", "ansible"),
    [
        ("", ("ctl1", "gpu01", "gpu02", "gpu03", "gpu04"), ""),
        ("gpu[01-02]", ("gpu01", "gpu02"), "gpu01,gpu02"),
        # no `group[0]` of Ansible's
        ("gpu[01],gpu02", ("gpu01", "gpu02"), "gpu01,gpu02"),
        ("gpu[01,04],ctl1", ("ctl1", "gpu01", "gpu04"), "gpu01,gpu04,ctl1"),
        ("slurm_controller", ("ctl1",), "slurm_controller"),
        ("slurm_controller, gpu03", ("ctl1", "gpu03"), "slurm_controller,gpu03"),
        ("gpu01,gpu01", ("gpu01",), "gpu01,gpu01"),
    ],
)
def test_a_limit_becomes_what_ansible_reads(text: str, hosts: tuple[str, ...], ansible: str) -> None:
    assert resolve_limit(text, CLUSTER) == Limit(ansible, hosts)


@pytest.mark.parametrize("text", ["!gpu01", "gpu*", "~gpu\\d", "slurm_compute:!gpu01", "slurm_compute[0]", "&all"])
def test_ansibles_own_patterns_pass_as_they_are(text: str) -> None:
    assert resolve_limit(text, CLUSTER) == Limit(text, None)
    assert resolve_limit(f"gpu[01-02],{text}", CLUSTER) == Limit(f"gpu01,gpu02,{text}", None)
    with pytest.raises(InputError, match="no node or group gpu05"):
        resolve_limit(f"gpu05,{text}", CLUSTER)
