"""One munge key for the whole cluster, and credentials that are good everywhere."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from deepopsctl.node_programs.suites.validate_smoke import munge
from tests.testinfra.collect import MUNGE_KEY, Live, Snapshot
from tests.testinfra.evaluation import accept


@cache
def _both_ways(live: Live) -> tuple[dict[str, str], dict[str, str]]:
    """By node: the controller's result for its credential, and its result for the controller's."""
    answering = {name: snapshot for name, snapshot in live.snapshots.items() if not snapshot.silence}
    here: dict[str, str] = {}
    for name, snapshot in answering.items():
        here |= (
            {name: live.decodes(snapshot.out("munge"), [live.primary])[live.primary]} if snapshot.out("munge") else {}
        )
    others = [name for name in answering if name != live.primary]
    return here, live.decodes(live.snapshots[live.primary].out("munge again"), others)


def test_all_nodes_have_the_same_munge_key(live: Live) -> None:
    owners: dict[str, list[str]] = defaultdict(list)
    for snapshot in live.snapshots.values():
        if not snapshot.silence:
            owners[snapshot.file(MUNGE_KEY).get("sha256", "none")].append(snapshot.node)

    assert len(owners) == 1, dict(owners)


def test_credentials_decode_between_it_and_the_controller(live: Live, node: Snapshot) -> None:
    if live.snapshots[live.primary].silence:
        pytest.skip(f"the controller {live.primary} does not answer")
    here, there = _both_ways(live)
    made = {"credential": node.out("munge"), "error": node.commands["munge"]["err"].strip()}

    accept([munge.across(node.node, made, here.get(node.node, ""), there.get(node.node, ""), live.primary)])
