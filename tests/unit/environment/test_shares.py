"""Shares that leave nothing to others are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.environment.shares import dominating
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.people import Group, People
from deepopsctl.model.policy import Account, Policy, Share

SPEC = """
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, roles: [controller, compute]}
partitions:
  - {name: cpu, nodes: ctl1}
"""


def cluster(*groups: tuple[str, int], accounts: tuple[Account, ...] = ()) -> Cluster:
    made = parse_spec(SPEC, "cluster.yml")
    people = People(
        groups=tuple(
            Group(name=name, gid=60001 + number, shares=shares) for number, (name, shares) in enumerate(groups)
        )
    )
    return replace(made, people=people, policy=Policy(accounts=accounts))


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ([("def-curie", 0), ("rrg-curie", 2000)], ["rrg-curie"]),
        ([("def-curie", 0), ("rrg-curie", 3)], []),
        ([("def-curie", 1), ("def-bohr", 1), ("rrg-curie", 20)], ["rrg-curie"]),
        ([("def-curie", 100), ("def-bohr", 100), ("rrg-curie", 600)], []),
        # there is no other
        ([("rrg-curie", 2000)], []),
    ],
)
def test_a_group_with_more_than_nine_tenths_is_named(groups: list[tuple[str, int]], named: list[str]) -> None:
    problems = list(dominating(cluster(*groups)))

    assert [problem.message.partition(" ")[0] for problem in problems] == named
    assert all("has 1" in problem.hint for problem in problems)


def test_accounts_of_cluster_yml_count_against_their_siblings() -> None:
    big, small = Account("big", share=Share(fairshare="95")), Account("small", share=Share(fairshare="5"))
    below = Account("below", parent="small", share=Share(fairshare="1000"))
    as_parent = Account("as-parent", share=Share(fairshare="parent"))

    (problem,) = dominating(cluster(accounts=(big, small, below, as_parent)))

    assert problem.message == "big has 95 of 100 shares (95.0%), the other account 5"
    assert list(dominating(cluster(("g", 50), accounts=(big, small)))) == []
