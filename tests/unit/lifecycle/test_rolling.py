"""Which nodes an upgrade gives back, and which it names, while others work on them as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.lifecycle import rolling
from deepopsctl.lifecycle.pace import Pace
from deepopsctl.lifecycle.rolling import Rolling, Selection, WorkResult
from deepopsctl.nodes import node_pass, wait_for_jobs
from deepopsctl.nodes.workflow import Flow
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.slurm.state import SlurmJob, SlurmNode, SlurmState
from tests.support.runs import CLUSTER, cluster_dir, flow, run_of

OWN = "deepopsctl: node upgrade os"
Start = Callable[..., tuple[Rolling, list[str]]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A pass over nodes, of which Slurm has these states one after the other; and what it does."""
    done = list[str]()

    def set_node_state(_flow: Flow, _cluster: object, state: str, names: Any, *_: str, **__: object) -> RunOutcome:
        done.append(f"{state} {','.join(names)}")
        return run_of()

    def work(names: tuple[str, ...]) -> WorkResult:
        done.append(f"work {','.join(names)}")
        return WorkResult({}, {})

    def begin(*states: SlurmState) -> tuple[Rolling, list[str]]:
        left = list(states)
        monkeypatch.setattr(Flow, "slurm_now", lambda _: left.pop(0) if len(left) > 1 else left[0])
        monkeypatch.setattr(rolling, "state_of", lambda _: left[0])
        operation = flow(cluster_dir(tmp_path), "upgrade os")
        return Rolling(operation, CLUSTER, Pace(), work, again="upgrade os"), done

    monkeypatch.setattr(Flow, "set_node_state", set_node_state)
    monkeypatch.setattr(node_pass, "try_out", lambda *_: done.append("validate"))
    monkeypatch.setattr(wait_for_jobs, "FIRST_PAUSE_S", 0.0)
    return begin


def slurm(state: str, reason: str = "", user: str = "root", *jobs: SlurmJob, reserved: bool = False) -> SlurmState:
    nodes = {"cn1": SlurmNode("cn1", state, reason, user)}
    return SlurmState(True, True, nodes=nodes, jobs=jobs, reserved=frozenset({"cn1"} if reserved else ()))


JOB = SlurmJob("7", "ubuntu", "RUNNING", "batch", ("cn1",))
LEFT_OUT = "cn1 is left out: drained by alice: bad DIMM; `deepopsctl upgrade os` includes it once that has ended"


def test_a_node_that_somebody_drains_at_the_same_time_is_named(start: Start) -> None:
    rolling, done = start(slurm("IDLE"), slurm("IDLE+DRAIN", "bad DIMM", "alice"))

    rolling.work_through(Selection((), ("cn1",), {}))

    assert done == ["out_of_service cn1"]
    assert rolling.flow.report.warnings == [LEFT_OUT]


def test_a_node_that_somebody_takes_out_meanwhile_is_not_validated(start: Start) -> None:
    busy, drained = slurm("MIXED+DRAIN", OWN, "root", JOB), slurm("IDLE+DRAIN", OWN)
    rolling, done = start(slurm("IDLE"), busy, drained, slurm("IDLE+DRAIN", "bad DIMM", "alice"))

    rolling.work_through(Selection((), ("cn1",), {}))

    assert done == ["out_of_service cn1", "work cn1"]
    assert (rolling.done, rolling.failed) == ([], {})
    assert rolling.flow.report.warnings == [LEFT_OUT]


def test_a_node_whose_validation_was_cut_off_is_not_resumed_untested_when_the_window_closes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = slurm("IDLE+DRAIN", OWN)
    rolling, done = start(
        slurm("MIXED", "", "root", JOB, reserved=True), slurm("MIXED+DRAIN", OWN, "root", JOB), drained
    )
    monkeypatch.setattr(Rolling, "_is_open", False)

    rolling.work_through(Selection(("cn1",), (), {}))

    assert done == ["out_of_service cn1", "work cn1", "validate"]
    assert rolling.done == ["cn1"]


def test_a_node_whose_jobs_have_not_ended_is_resumed_when_the_window_closes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolling, done = start(slurm("MIXED+DRAIN", OWN, "root", JOB))
    monkeypatch.setattr(Rolling, "_is_open", False)

    rolling.work_through(Selection(("cn1",), (), {}))

    assert done == ["out_of_service cn1", "resumed cn1"]
    assert rolling.queue == ["cn1"]
