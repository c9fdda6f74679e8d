"""Which nodes are drained, resumed, left or refused, which jobs count, and where the validation's jobs run."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs._shared.node_states import drain_reason
from deepopsctl.node_programs.suites.validate_smoke import state
from deepopsctl.slurm.state import SlurmNode
from tests.support import node_modules as nodeside

service = nodeside.load("slurm.node_service")
OURS = "deepopsctl: new fan"


def node(state: str, reason: str = "", user: str = "") -> dict[str, Any]:
    return {"name": "gpu01", "state": state, "reason": reason, "reason_user": user, "reason_since": ""}


def action(wanted: str, state: str, reason: str = "", user: str = "") -> tuple[str, str]:
    (entry,) = service.decide(wanted, ["gpu01"], {"gpu01": node(state, reason, user)}, OURS)
    return entry["action"], entry["message"]


def test_a_reason_is_one_line_with_our_prefix() -> None:
    assert drain_reason("  new\n fan ") == OURS
    assert drain_reason('a "new" fan"').endswith("a 'new' fan'")


def test_a_plan_changes_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    def ask(argv: list[str]) -> Result:
        ran.append(tuple(argv))
        return Result("scontrol", 0, "", "", 0.1)

    monkeypatch.setattr(service, "require_state", lambda _patience: [])
    monkeypatch.setattr(service, "known_nodes", lambda _state, _names: {"gpu01": node("IDLE", "", "")})
    monkeypatch.setattr(service.slurm_client, "ask", ask)

    decided = service.drain_or_resume("drain", ["gpu01"], OURS, {}, dry=True)
    assert (decided[0][0]["action"], ran) == ("drain", [])
    assert service.drain_or_resume("drain", ["gpu01"], OURS, {}, dry=False) == decided
    assert ran == [("scontrol", "update", "nodename=gpu01", "state=drain", "reason=" + OURS)]


@pytest.mark.parametrize(
    ("wanted", "state", "reason", "user", "result"),
    [
        ("drain", "IDLE", "", "", ("drain", OURS)),
        ("drain", "DOWN*", "Not responding", "slurm", ("drain", OURS)),
        ("drain", "IDLE+DRAIN", OURS, "root", ("none", None)),
        # a new reason replaces our old one, and none of anybody else
        ("drain", "IDLE+DRAIN", "deepopsctl: old fan", "root", ("drain", OURS)),
        ("drain", "MIXED+DRAIN", "bad DIMM", "alice", ("kept", "drained by alice since ?: bad DIMM")),
        ("drain", "DOWN", "burnt", "alice", ("kept", "set down by alice since ?: burnt")),
        ("resume", "IDLE+DRAIN", OURS, "root", ("resume", None)),
        ("resume", "MIXED+DRAIN", OURS, "root", ("resume", None)),
        ("resume", "IDLE+DRAIN", "bad DIMM", "alice", ("refused", "drained by alice since ?: bad DIMM")),
        ("resume", "IDLE+DRAIN", "", "", ("refused", "drained by an unknown user since ?: no reason given")),
        ("resume", "IDLE", "", "", ("none", "not drained")),
    ],
)
def test_only_what_deepopsctl_drained_is_resumed_or_drained_again(
    wanted: str, state: str, reason: str, user: str, result: tuple[str, str | None]
) -> None:
    actual, message = action(wanted, state, reason, user)

    assert (actual, message if result[1] else None) == result


@pytest.mark.parametrize(
    ("state", "is_broken"),
    [
        *((state, True) for state in ("DOWN", "DOWN*+DRAIN", "IDLE*+DRAIN", "FAIL+DRAIN", "IDLE+DRAIN+INVALID_REG")),
        *((f"{state}+DRAIN", False) for state in ("IDLE", "MIXED", "IDLE+POWERED_DOWN", "FAILING", "DOWN")),
    ],
)
def test_a_node_that_would_run_jobs_is_resumed_and_a_broken_one_is_not(state: str, is_broken: bool) -> None:
    refusal = "refused", f"Slurm has it as {state.lower()} ({OURS})"

    actual = action("resume", state, OURS, "root")

    assert SlurmNode("gpu01", state).is_faulty is is_broken
    assert actual == refusal if is_broken else actual[0] == "resume"


def test_a_node_that_slurm_does_not_know_is_refused() -> None:
    (entry,) = service.decide("drain", ["gpu09"], {}, OURS)
    assert entry == {"name": "gpu09", "action": "refused", "message": "Slurm has no node of that name"}


def test_a_node_with_other_gpus_is_not_resumed_and_may_be_drained() -> None:
    node = {"state": "IDLE+DRAIN", "reason": OURS, "reason_user": "root", "reason_since": "2026-01-01T10:00:00"}
    others = {"gpu01": "its GPUs are not what they should be"}

    (resumed,) = service.decide("resume", ["gpu01"], {"gpu01": node}, OURS, others)
    (drained,) = service.decide("drain", ["gpu01"], {"gpu01": node}, OURS + "!", others)

    assert (resumed["action"], resumed["message"]) == ("refused", others["gpu01"])
    assert drained["action"] == "drain"


REBOOT = "deepopsctl: node reboot"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (node("IDLE"), "reboot"),
        (node("MIXED"), "reboot"),
        # Slurm would end these drains when the node returns
        (node("IDLE+DRAIN", "bad DIMM", "alice"), "refused"),
        (node("IDLE+DRAIN", "Kill task failed", "slurm"), "refused"),
        (node("DOWN", "burnt", "root"), "refused"),
        (node("IDLE+DRAIN", OURS, "root"), "host"),
        # an upgrade's drain ends with its reboot
        (node("IDLE+DRAIN", "deepopsctl: node upgrade os", "root"), "reboot"),
        (node("IDLE*+DRAIN", "deepopsctl: node upgrade os", "root"), "host"),
        (node("DOWN*", "Not responding", "slurm"), "host"),
        (node("IDLE*"), "host"),
        (node("MIXED+DRAIN+REBOOT_REQUESTED", REBOOT, "root"), "none"),
        (node("IDLE+DRAIN+REBOOT_REQUESTED", "kernel", "alice"), "refused"),
        (node("DOWN", REBOOT + " : reboot complete", "slurm"), "back"),
        (node("IDLE+DRAIN", REBOOT + ", validation failed, see run 1", "root"), "back"),
        (node("IDLE+POWERED_DOWN"), "refused"),
        (None, "refused"),
    ],
)
def test_slurm_reboots_only_a_node_whose_drain_would_not_be_lost(shown: dict[str, Any] | None, expected: str) -> None:
    assert service.reboot_decision(shown, False)[0] == expected


def test_a_node_whose_validation_was_cut_off_is_validated_before_it_reboots() -> None:
    action, message = service.reboot_decision({**node("IDLE"), "name": "gpu01"}, True)

    assert action == "refused"
    assert "`deepopsctl node add gpu01`" in message


@pytest.mark.parametrize(
    "config",
    ["RebootProgram = (null)\nResumeTimeout = 900 sec", "RebootProgram = /sbin/reboot\nResumeTimeout = 60 sec"],
)
def test_no_reboot_is_asked_for_that_slurm_would_take_for_a_failure(
    monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    monkeypatch.setattr(service, "ask_patiently", lambda _argv: "RebootProgram = /sbin/reboot\nResumeTimeout = 900 sec")
    service.require_reboot_settings()

    monkeypatch.setattr(service, "ask_patiently", lambda _argv: config)
    with pytest.raises(service.RefusedError):
        service.require_reboot_settings()


@pytest.mark.parametrize(
    ("shown", "is_foreign"),
    [
        (node("IDLE+DRAIN", "bad fan", "alice"), True),
        (node("DOWN", "bad fan", "root"), True),
        (node("IDLE+DRAIN", "deepopsctl: bad fan", "root"), True),
        (node("IDLE"), False),
        (node("DOWN*", "Not responding", "slurm"), False),
        (node("IDLE+DRAIN", "gres/gpu count reported lower than configured (0 < 2)", "slurm"), False),
        (node("IDLE+DRAIN", "deepopsctl: node remove", "root"), False),
    ],
)
def test_what_a_person_took_out_stays_out(shown: dict[str, str], is_foreign: bool) -> None:
    assert service.is_foreign(shown) is is_foreign


def test_only_jobs_that_hold_one_of_the_nodes_count() -> None:
    jobs = [
        {"id": "1", "state": "RUNNING", "nodes": ["gpu03", "gpu04"]},
        {"id": "2", "state": "RUNNING", "nodes": ["gpu01"]},
        {"id": "3", "state": "PENDING", "nodes": ["gpu03"]},
        {"id": "4", "state": "COMPLETING", "nodes": ["gpu03"]},
    ]

    assert [job["id"] for job in service.jobs_on({"jobs": jobs}, ["gpu03"])] == ["1", "4"]


@pytest.mark.parametrize(
    ("node_state", "job_state", "nodes"),
    [
        ("IDLE*+DRAIN", "COMPLETING", ["gpu01"]),
        # it answers: the end of its job is a matter of seconds
        ("MIXED+DRAIN", "COMPLETING", []),
        # slurmctld tries to end it first
        ("MIXED*+DRAIN", "RUNNING", []),
        ("DOWN*+DRAIN", "COMPLETING", []),
    ],
)
def test_a_silent_node_whose_cancelled_jobs_do_not_end_is_set_down(
    node_state: str, job_state: str, nodes: list[str]
) -> None:
    asked = {"nodes": [node(node_state)]}
    jobs = [{"id": "1", "state": job_state, "nodes": ["gpu01", "gpu02"]}]

    assert service.without_slurmd(asked, jobs, ["gpu01"]) == nodes


@pytest.mark.parametrize(
    ("text", "reserved", "status"),
    [("IDLE+RESERVED", True, "pass"), ("IDLE+DRAIN+RESERVED", True, "fail"), ("IDLE+RESERVED", False, "warn")],
)
def test_a_node_on_trial_may_be_reserved(text: str, reserved: bool, status: str) -> None:
    assert state.node_state("gpu03", {"State": text}, reserved=reserved)["status"] == status


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(
    ("shown", "serves", "recorded"), [("", True, False), ("NodeName=gpu01 State=IDLE", True, True), ("", False, True)]
)
def test_a_node_of_which_slurmctld_says_nothing_is_asked_about_again(
    monkeypatch: pytest.MonkeyPatch, shown: str, serves: bool, recorded: bool
) -> None:
    module, jobs = nodeside.plugin("modules", "slurm_node_state"), nodeside.load("slurm.node_jobs")
    answer = Result("scontrol", 0 if shown else 1, shown, "", 0.1)
    monkeypatch.setattr(jobs.slurm_client, "ask", lambda *_options: answer)
    monkeypatch.setattr(jobs, "_serves", lambda: serves)
    params = {"nodes": ["gpu01"], "state": "resumed", "reason": "its driver", "local": True,
              "component": "nvidia", "step": "in_service", "digest": "d"}  # fmt: skip

    assert nodeside.Call(params).run(module)["changed"] is False
    assert bool(nodeside.load("node.record").load("nvidia", "in_service")) is recorded
