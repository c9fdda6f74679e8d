"""What becomes of a node for which a reboot was requested; and which nodes are never rebooted."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.errors import ExitCode, InputError
from deepopsctl.nodes import node_pass, reboot
from deepopsctl.nodes.admit import NotAdmittedError
from deepopsctl.nodes.reboot import Phase, RebootOptions, phase_of, refuse_services
from deepopsctl.nodes.workflow import Flow
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import Failure, TaskResult
from deepopsctl.slurm.state import SlurmNode
from tests.support.runs import CLUSTER, cluster_dir, flow, run_of

REASON = "deepopsctl: node reboot"
# of cn2 and cn3 slurmd is away: systemd reboots them
ACTIONS = {"cn1": "reboot", "cn2": "host", "cn3": "host"}
STATES = {"cn1": "MIXED+REBOOT_REQUESTED", "cn2": "DOWN*", "cn3": "DOWN*"}


@pytest.mark.parametrize(
    ("state", "reason", "phase"),
    [
        ("MIXED+DRAIN+REBOOT_REQUESTED", REASON, Phase.WAITING),
        ("DOWN+DRAIN+REBOOT_ISSUED", f"{REASON} : reboot issued", Phase.REBOOTING),
        ("DOWN", f"{REASON} : reboot complete", Phase.BACK),
        ("DOWN*", f"{REASON} : reboot timed out", Phase.LATE),
        ("IDLE", "", Phase.IN_SERVICE),
        ("IDLE+DRAIN", "bad DIMM", Phase.TAKEN_OUT),
        ("IDLE+DRAIN", f"{REASON}, validation failed, see run 1", Phase.TAKEN_OUT),
        ("DOWN", "burnt", Phase.TAKEN_OUT),
    ],
)
def test_the_state_in_slurm_says_how_far_a_reboot_is(state: str, reason: str, phase: Phase) -> None:
    assert phase_of(SlurmNode("gpu01", state, reason=reason)) is phase


def test_a_node_that_all_others_depend_on_is_not_rebooted() -> None:
    refuse_services(CLUSTER.compute)
    with pytest.raises(InputError, match="ctl1 is controller"):
        refuse_services(CLUSTER.nodes)


def test_a_node_that_passed_is_not_reported_with_one_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise NotAdmittedError(["cn1"], "cn1 failed the validation", "", ExitCode.FAILED)

    monkeypatch.setattr(node_pass, "try_out", refuse)
    operation = flow(cluster_dir(tmp_path), "node reboot", "cn1", "cn2")
    work = reboot._Reboot(operation, CLUSTER, CLUSTER.compute[:2], RebootOptions(("cn[1-2]",)))

    work._admit(["cn1", "cn2"])
    with operation.reporting():
        work._conclude()

    assert operation.report.closing == "cn2 rebooted"
    assert operation.report.stopped
    assert operation.report.stopped.message == "cn1: cn1 failed the validation"


def test_a_node_that_slurm_can_not_reboot_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = {"reboot": [{"name": "cn1", "action": "host", "message": "deepopsctl: node upgrade os"}]}
    monkeypatch.setattr(Flow, "set_node_state", lambda *_, **__: run_of(TaskResult("ctl1", "", answer)))

    lost = reboot.reboot_drained(flow(cluster_dir(tmp_path), "upgrade os"), CLUSTER, ["cn1"])

    assert lost == {"cn1": "it does not answer slurmctld (deepopsctl: node upgrade os)"}


def test_a_node_that_systemd_can_not_reboot_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requested = {"reboot": [{"name": name, "action": action, "message": ""} for name, action in ACTIONS.items()]}
    states = {"nodes": [{"name": name, "state": state, "reason": ""} for name, state in STATES.items()]}
    answer = TaskResult("ctl1", "", {**requested, "slurm": states})
    down = Failure("cn3", "", "Reboot", "no answer", "", unreachable=True)
    monkeypatch.setattr(Flow, "set_node_state", lambda *_, **__: run_of(answer))
    monkeypatch.setattr(Flow, "run_playbooks", lambda *_, **__: run_of(down, hosts={"cn3": Totals(unreachable=1)}))
    monkeypatch.setattr(node_pass, "try_out", lambda *_: None)
    operation = flow(cluster_dir(tmp_path), "node reboot", *ACTIONS)
    work = reboot._Reboot(operation, CLUSTER, CLUSTER.compute[:3], RebootOptions(("cn[1-3]",)), queue=list(ACTIONS))

    work._request()
    with operation.reporting():
        work._conclude()

    assert operation.report.closing == "cn2 rebooted; cn1 reboots when its jobs have ended, see `deepopsctl status`"
    assert operation.report.stopped
    assert operation.report.stopped.message == "cn3: it was not rebooted, or is not back: does not answer"


def test_a_node_is_not_rebooted_where_slurm_does_not_say_any_more_what_runs_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = {"reboot": [{"name": "cn1", "action": "host", "message": ""}], "slurm": {"error": "connection refused"}}
    monkeypatch.setattr(Flow, "set_node_state", lambda *_, **__: run_of(TaskResult("ctl1", "", answer)))
    monkeypatch.setattr(Flow, "run_playbooks", lambda *_, **__: pytest.fail("it was rebooted"))
    operation = flow(cluster_dir(tmp_path), "node reboot", "cn1")
    work = reboot._Reboot(operation, CLUSTER, CLUSTER.compute[:1], RebootOptions(("cn1",)), queue=["cn1"])

    work._request()

    assert work.failed == {"cn1": "it was not rebooted: slurmctld does not say any more which jobs run there"}
