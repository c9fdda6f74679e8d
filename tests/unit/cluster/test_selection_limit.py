from __future__ import annotations

import pytest

from deepopsctl.cluster.selection import Limit, resolve_limit
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.model.cluster import Access, Cluster, Node, Role

NODES = (
    Node("ctl1", frozenset({Role.CONTROLLER})),
    *(Node(f"gpu0{number}", frozenset({Role.COMPUTE})) for number in range(1, 5)),
)
CLUSTER = Cluster("hpc", Access("ubuntu"), NODES, ())


def test_no_limit_is_every_node() -> None:
    assert resolve_limit("", CLUSTER) == Limit("", ("ctl1", "gpu01", "gpu02", "gpu03", "gpu04"))


@pytest.mark.parametrize(
    ("text", "hosts", "ansible"),
    [
        ("gpu[01-02]", ("gpu01", "gpu02"), "gpu01,gpu02"),
        ("gpu[01,04],ctl1", ("ctl1", "gpu01", "gpu04"), "gpu01,gpu04,ctl1"),
        ("slurm_controller", ("ctl1",), "slurm_controller"),
        ("slurm_controller, gpu03", ("ctl1", "gpu03"), "slurm_controller,gpu03"),
        ("gpu01,gpu01", ("gpu01",), "gpu01,gpu01"),
    ],
)
def test_node_sets_and_groups_become_what_ansible_reads(text: str, hosts: tuple[str, ...], ansible: str) -> None:
    assert resolve_limit(text, CLUSTER) == Limit(ansible, hosts)


@pytest.mark.parametrize("text", ["!gpu01", "gpu*", "~gpu\\d", "slurm_compute:!gpu01", "slurm_compute[0]", "&all"])
def test_ansibles_own_patterns_pass_as_they_are(text: str) -> None:
    assert resolve_limit(text, CLUSTER) == Limit(text, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu[01-09]", r"no node or group gpu\[05-09\]"),
        ("gpuu", "no node or group gpuu"),
        ("gpu[01-", "bracket is not closed"),
        ("gpu[1-999999999]", "more than 100,000"),
        ("slurm_login", "has no nodes"),
    ],
)
def test_what_fits_no_node_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        resolve_limit(text, CLUSTER)
    assert caught.value.exit_code == ExitCode.INVALID_INPUT
    assert caught.value.problems[0].where == "--limit"
