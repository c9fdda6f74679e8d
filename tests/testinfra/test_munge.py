"""One munge key for the whole cluster, and credentials that are good everywhere."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from tests.support.node_modules import load
from tests.testinfra.collect import MUNGE_KEY, Live, Look
from tests.testinfra.judge import accept

munge = load("deepops_smoke.munge")


@cache
def _both_ways(live: Live) -> tuple[dict[str, str], dict[str, str]]:
    """By node: what the controller says to its credential, and what it says to the controller's."""
    answering = {name: look for name, look in live.looks.items() if not look.silence}
    here: dict[str, str] = {}
    for name, look in answering.items():
        here |= {name: live.decodes(look.out("munge"), [live.primary])[live.primary]} if look.out("munge") else {}
    others = [name for name in answering if name != live.primary]
    return here, live.decodes(live.looks[live.primary].out("munge again"), others)


def test_all_nodes_have_the_same_munge_key(live: Live) -> None:
    owners: dict[str, list[str]] = defaultdict(list)
    for look in live.looks.values():
        if not look.silence:
            owners[look.file(MUNGE_KEY).get("sha256", "none")].append(look.node)

    assert len(owners) == 1, dict(owners)


def test_credentials_decode_between_it_and_the_controller(live: Live, node: Look) -> None:
    if live.looks[live.primary].silence:
        pytest.skip(f"the controller {live.primary} does not answer")
    here, there = _both_ways(live)
    made = {"credential": node.out("munge"), "error": node.commands["munge"]["err"].strip()}

    accept([munge.across(node.node, made, here.get(node.node, ""), there.get(node.node, ""), live.primary)])
