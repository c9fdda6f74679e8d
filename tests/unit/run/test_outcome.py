from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.run.events import Event, HostResult, Notice, Recap, Status, TaskStarted, Totals
from deepopsctl.run.outcome import Failure, Late, reduce


def ended(host: str, task: str, status: Status, at: float = 0.0, message: str = "") -> HostResult:
    changed = status is Status.CHANGED
    return HostResult(host, "slurm", "Nodes", task, status, 1.0, at=at, changed=changed, message=message)


def test_ok_includes_changed_and_ignored_as_in_ansible() -> None:
    statuses = [Status.OK, Status.CHANGED, Status.IGNORED, Status.SKIPPED]
    summary = reduce(ended("a", f"t{index}", status) for index, status in enumerate(statuses))
    assert summary.hosts["a"] == Totals(ok=3, changed=1, skipped=1, ignored=1)


def test_rescued_failures_are_dropped_and_the_last_ones_stay() -> None:
    events: list[Event] = [
        ended("a", "rescued", Status.FAILED, at=1, message="first"),
        ended("a", "real", Status.FAILED, at=2, message="second"),
        ended("b", "rescued", Status.FAILED, at=1, message="third"),
        Recap({"a": Totals(failed=1, rescued=1), "b": Totals(ok=4, rescued=1)}),
    ]
    assert [(failure.host, failure.task) for failure in reduce(events).failures] == [("a", "real")]


def test_ansibles_own_count_wins_and_what_came_after_the_last_recap_counts_too() -> None:
    events: list[Event] = [
        ended("a", "rescued", Status.FAILED, at=1),
        Recap({"a": Totals(ok=1, rescued=1)}),
        ended("a", "rescued", Status.FAILED, at=2),
        ended("b", "real", Status.FAILED, at=3),
        Recap({"a": Totals(ok=2, rescued=2), "b": Totals(failed=1)}),
        # stopped in the third playbook
        ended("a", "last", Status.FAILED, at=4),
    ]
    summary = reduce(events)
    assert [(failure.host, failure.task) for failure in summary.failures] == [("b", "real"), ("a", "last")]
    assert summary.hosts == {"a": Totals(ok=2, failed=1, rescued=2), "b": Totals(failed=1)}


def test_failures_come_before_unreachable_hosts_and_in_order_of_time() -> None:
    events = [
        ended("a", "t", Status.UNREACHABLE, at=1),
        ended("b", "t", Status.FAILED, at=3),
        ended("c", "t", Status.FAILED, at=2),
    ]
    failures = reduce(events).failures
    assert [failure.host for failure in failures] == ["c", "b", "a"]
    assert [failure.unreachable for failure in failures] == [False, False, True]


def test_a_modules_hint_wins_over_the_table() -> None:
    message = "No space left on device"
    own = HostResult("a", "slurm", "", "t", Status.FAILED, 1.0, message=message, hint="buy a disk")
    other = ended("b", "t", Status.FAILED, message=message)
    assert [failure.hint for failure in reduce([own, other]).failures] == [
        "buy a disk",
        "free disk space on the node: see `df -h`",
    ]


def test_a_task_is_as_slow_as_its_last_host() -> None:
    events: list[Event] = [
        TaskStarted("slurm", "Nodes", "Install", at=100.0),
        ended("a", "Install", Status.OK, at=101.0),
        ended("b", "Install", Status.OK, at=107.5),
        TaskStarted("slurm", "Nodes", "Start", at=107.5),
        ended("a", "Start", Status.OK, at=108.0),
    ]
    assert reduce(events).slowest == (("slurm: Install", 7.5), ("slurm: Start", 0.5))


def test_warnings_are_said_once_and_empty_groups_of_ours_are_none() -> None:
    events = [
        Notice("warning", "[WARNING]: odd\nthing"),
        Notice("warning", "[WARNING]: odd thing"),
        Notice("deprecation", "[DEPRECATION WARNING]: old way"),
        Notice("error", "[ERROR]: not a warning"),
        Notice("warning", "[WARNING]: Could not match supplied host pattern, ignoring: deepops_slurm_todo"),
    ]
    assert reduce(events).warnings == ("odd thing", "old way")


def test_what_a_module_leaves_out_is_a_failure_and_no_warning_of_a_host_that_goes_on() -> None:
    left = HostResult(
        "a", "monitoring", "", "source", Status.OK, 1.0, hint="name a mirror", left_out="cannot fetch x",
        warnings=("cannot fetch x", "another"),
    )  # fmt: skip

    summary = reduce([left, ended("a", "next", Status.CHANGED), Recap({"a": Totals(ok=2, changed=1)})])

    (failure,) = summary.failures
    assert (failure.host, failure.task, failure.message, failure.hint, failure.unreachable) == (
        "a", "source", "cannot fetch x", "name a mirror", False,
    )  # fmt: skip
    assert summary.hosts["a"].failed == 0
    assert summary.warnings == ("a: another",)


def test_an_optional_download_that_is_left_out_is_no_failure() -> None:
    left = HostResult(
        "a", "monitoring", "", "source", Status.OK, 1.0, hint="name a mirror", left_out="cannot fetch x",
        optional="Grafana", warnings=("cannot fetch x",),
    )  # fmt: skip

    summary = reduce([left, Recap({"a": Totals(ok=1)})])

    assert (summary.failures, summary.warnings) == ((), ())
    assert summary.as_object()["left_out"] == [
        {
            "host": "a",
            "component": "monitoring",
            "what": "Grafana",
            "message": "cannot fetch x",
            "hint": "name a mirror",
        }
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("E: It is held by process 287 (apt-get)", "E: It is held by process 9 (apt-get)"),
        ("E: Failed to fetch x  404 [IP: 192.0.2.1 80]", "E: Failed to fetch x  404 [IP: 2001:db8::7 80]"),
    ],
)
def test_nodes_that_failed_for_one_reason_are_reported_together(one: str, other: str) -> None:
    assert Failure("a", "slurm", "t", one, "").anywhere == Failure("b", "slurm", "t", other, "").anywhere
    assert Failure("a", "slurm", "t", one, "").anywhere != Failure("b", "slurm", "t", f"{other}; more", "").anywhere


def test_the_node_that_kept_the_others_waiting_is_named_and_no_other() -> None:
    def late(seconds: float) -> object:
        tasks = [(host, task, 1.0) for host in "abc" for task in ("Install", "Configure")]
        tasks += [("d", "Install", 1.0 + seconds), ("d", "Configure", 3.0), ("ctl", "Only here", 60.0)]
        return reduce(replace(ended(host, task, Status.OK), elapsed_s=took) for host, task, took in tasks).late

    assert late(20.0) == Late("d", 22.0, "slurm: Install")
    assert late(1.0) is None
