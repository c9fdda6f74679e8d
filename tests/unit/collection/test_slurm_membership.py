"""Whose drains are ended, which jobs count, and where the validation's jobs run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from deepopsctl.nodes.workflow import DRAIN_REASON_PREFIX, RESERVATION
from tests.support import node_modules as nodeside
from tests.support.paths import ROOT

asking = nodeside.load("slurm.query")
nodeside.load("slurm.drain")
command = nodeside.load("deepops_smoke.command")
state = nodeside.load("deepops_smoke.state")


def load_module() -> Any:
    found = importlib.util.spec_from_file_location(
        "slurm_membership", ROOT / "plugins" / "modules" / "slurm_membership.py"
    )
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


membership = load_module()


@pytest.fixture
def reservation() -> Iterator[None]:
    command.use_reservation("deepopsctl-trial")
    yield
    command.use_reservation("")


def node(words: str, reason: str = "", user: str = "") -> dict[str, str]:
    return {"name": "gpu03", "state": words, "reason": reason, "reason_user": user}


def test_both_sides_have_the_same_names_for_things() -> None:
    assert membership.OURS == DRAIN_REASON_PREFIX
    assert membership.RESERVATION == RESERVATION


@pytest.mark.parametrize(
    "found",
    [
        node("IDLE+DRAIN", "bad fan", "alice"),
        node("DOWN", "bad fan", "root"),
        node("IDLE+DRAIN", "deepopsctl: bad fan", "root"),
    ],
)
def test_what_a_person_took_out_stays_out(found: dict[str, str]) -> None:
    assert membership.is_foreign(found)


@pytest.mark.parametrize(
    "found",
    [
        node("IDLE"),
        node("DOWN*", "Not responding", "slurm"),
        node("IDLE+DRAIN", "gres/gpu count reported lower than configured (0 < 2)", "slurm"),
        node("IDLE+DRAIN", "deepopsctl: node remove", "root"),
    ],
)
def test_what_slurm_or_an_earlier_run_took_out_may_come_back(found: dict[str, str]) -> None:
    assert not membership.is_foreign(found)


def test_only_jobs_that_hold_one_of_the_nodes_count() -> None:
    jobs = [
        {"id": "1", "state": "RUNNING", "nodes": ["gpu03", "gpu04"]},
        {"id": "2", "state": "RUNNING", "nodes": ["gpu01"]},
        {"id": "3", "state": "PENDING", "nodes": ["gpu03"]},
        {"id": "4", "state": "COMPLETING", "nodes": ["gpu03"]},
    ]

    assert [job["id"] for job in membership.jobs_on({"jobs": jobs}, ["gpu03"])] == ["1", "4"]


def test_jobs_of_a_trial_ask_for_its_reservation(reservation: None) -> None:
    found = command.clean_environment()

    assert {found[key] for key in ("SLURM_RESERVATION", "SBATCH_RESERVATION", "SALLOC_RESERVATION")} == {RESERVATION}


def test_jobs_ask_for_no_reservation_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_RESERVATION", "a-users-own")

    assert not [key for key in command.clean_environment() if key.endswith("RESERVATION")]


def test_a_node_on_trial_may_be_reserved(reservation: None) -> None:
    assert state.node_state("gpu03", {"State": "IDLE+RESERVED"})["status"] == "pass"
    assert state.node_state("gpu03", {"State": "IDLE+DRAIN+RESERVED"})["status"] == "fail"


def test_any_other_reserved_node_is_pointed_out() -> None:
    assert state.node_state("gpu03", {"State": "IDLE+RESERVED"})["status"] == "warn"
