"""Which nodes are drained, resumed, left or refused."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.slurm.state import REASON_PREFIX, SlurmNode
from tests.support import node_modules as nodeside

draining = nodeside.load("slurm.drain")
OURS = "deepopsctl: new fan"


def node(state: str, reason: str = "", user: str = "") -> dict[str, Any]:
    return {"name": "gpu01", "state": state, "reason": reason, "reason_user": user, "reason_since": ""}


def action(wanted: str, state: str, reason: str = "", user: str = "") -> tuple[str, str]:
    (entry,) = draining.decide(wanted, ["gpu01"], {"gpu01": node(state, reason, user)}, OURS)
    return entry["action"], entry["message"]


def test_a_node_in_service_is_drained_with_our_prefix() -> None:
    assert draining.our_reason("  new\n fan ") == OURS
    assert action("drain", "IDLE") == ("drain", OURS)
    assert action("drain", "DOWN*", "Not responding", "slurm") == ("drain", OURS)


def test_draining_twice_does_nothing() -> None:
    assert action("drain", "IDLE+DRAIN", OURS, "root")[0] == "none"


def test_a_new_reason_of_ours_replaces_our_old_one() -> None:
    assert action("drain", "IDLE+DRAIN", "deepopsctl: old fan", "root") == ("drain", OURS)


def test_a_drain_of_somebody_else_is_kept() -> None:
    assert action("drain", "MIXED+DRAIN", "bad DIMM", "alice") == ("kept", "drained by alice since ?: bad DIMM")


def test_a_node_that_somebody_set_down_keeps_their_reason() -> None:
    assert action("drain", "DOWN", "burnt", "alice") == ("kept", "set down by alice since ?: burnt")


def test_only_our_drains_are_resumed() -> None:
    assert action("resume", "IDLE+DRAIN", OURS, "root")[0] == "resume"
    assert action("resume", "MIXED+DRAIN", OURS, "root")[0] == "resume"
    assert action("resume", "IDLE+DRAIN", "bad DIMM", "alice") == ("refused", "drained by alice since ?: bad DIMM")
    assert action("resume", "IDLE+DRAIN", "", "") == ("refused", "drained by somebody since ?: no reason given")


def test_resuming_twice_does_nothing() -> None:
    assert action("resume", "IDLE") == ("none", "not drained")


@pytest.mark.parametrize("state", ["DOWN", "DOWN*+DRAIN", "IDLE*+DRAIN", "IDLE+DRAIN+INVALID_REG"])
def test_a_broken_node_is_not_resumed(state: str) -> None:
    assert action("resume", state, OURS, "root") == ("refused", f"Slurm has it as {state.lower()} ({OURS})")


def test_a_node_that_slurm_does_not_know_is_refused() -> None:
    (entry,) = draining.decide("drain", ["gpu09"], {}, OURS)
    assert entry == {"name": "gpu09", "action": "refused", "message": "Slurm has no node of that name"}


def test_a_node_with_other_gpus_is_not_resumed_and_may_be_drained() -> None:
    node = {"state": "IDLE+DRAIN", "reason": OURS, "reason_user": "root", "reason_since": "2026-01-01T10:00:00"}
    others = {"gpu01": "its GPUs are not what they should be"}

    (resumed,) = draining.decide("resume", ["gpu01"], {"gpu01": node}, OURS, others)
    (drained,) = draining.decide("drain", ["gpu01"], {"gpu01": node}, OURS + "!", others)

    assert (resumed["action"], resumed["message"]) == ("refused", others["gpu01"])
    assert drained["action"] == "drain"


def test_both_sides_agree_on_the_prefix_and_on_what_is_broken() -> None:
    assert draining.PREFIX == REASON_PREFIX
    for state in (
        "IDLE",
        "DOWN",
        "DOWN*",
        "IDLE+POWERED_DOWN",
        "MIXED",
        "FAIL",
        "FAILING",
        "IDLE+INVALID_REG",
        "IDLE*",
    ):
        refused = action("resume", f"{state}+DRAIN", OURS, "root")[0] == "refused"
        assert refused is SlurmNode("gpu01", state).is_faulty, state
