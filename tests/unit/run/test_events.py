from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.run.events import (
    CENSORED,
    MAX_MESSAGE,
    Difference,
    HostResult,
    HostStarted,
    Notice,
    PlayStarted,
    Recap,
    Status,
    TaskStarted,
    Totals,
    parse,
)


def raw(event: str, stdout: str = "", **data: Any) -> dict[str, Any]:
    """An event as the Ansible callback sends it."""
    known = {"playbook": "/content/playbooks/slurm.yml", "play": "Nodes", "task": "Install", "host": "gpu01"}
    created = "2026-11-21T09:30:12.500000+00:00"
    return {"event": event, "stdout": stdout, "created": created, "event_data": {**known, **data}}


def result(event: str, stdout: str = "", **data: Any) -> HostResult:
    actual = parse(raw(event, stdout, **data))
    assert isinstance(actual, HostResult)
    return actual


def test_the_component_is_the_playbook_unless_the_run_names_it() -> None:
    assert parse(raw("playbook_on_play_start")) == PlayStarted("slurm", "Nodes")
    assert parse(raw("playbook_on_play_start"), "validate") == PlayStarted("validate", "Nodes")


def test_tasks_and_hosts_start() -> None:
    assert parse(raw("playbook_on_task_start")) == TaskStarted("slurm", "Nodes", "Install", 1795253412.5)
    assert parse(raw("runner_on_start")) == HostStarted("gpu01", "Install")


@pytest.mark.parametrize(
    ("event", "data", "status"),
    [
        ("runner_on_ok", {"res": {"changed": False}}, Status.OK),
        ("runner_on_ok", {"res": {"changed": True}}, Status.CHANGED),
        ("runner_on_failed", {"res": {"msg": "no"}, "ignore_errors": None}, Status.FAILED),
        ("runner_on_failed", {"res": {"msg": "no"}, "ignore_errors": True}, Status.IGNORED),
        ("runner_on_unreachable", {"res": {"msg": "no"}}, Status.UNREACHABLE),
        ("runner_on_skipped", {}, Status.SKIPPED),
    ],
)
def test_every_end_of_a_task_has_its_status(event: str, data: dict[str, Any], status: Status) -> None:
    assert result(event, **data).status is status


def test_a_no_log_result_is_changed_if_ansible_printed_so() -> None:
    hidden = {"censored": "hidden"}
    printed = "\r\nTASK [Install] ****\r\nchanged: [gpu01]"
    assert result("runner_on_ok", printed, res=hidden).status is Status.CHANGED
    assert result("runner_on_ok", "ok: [gpu01]", res=hidden).status is Status.OK


def test_a_censored_failure_stays_censored() -> None:
    assert result("runner_on_failed", res={"censored": "hidden"}).message == CENSORED


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Task failed: Module failed: non-zero return code", "non-zero return code"),
        (
            ('Task failed: Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over '
            "ssh: no such identity: /c/ssh/id_ed25519: No such file or directory\r\nubuntu@10.0.0.1: Permission denied "
            "(publickey)."),
            "ubuntu@10.0.0.1: Permission denied (publickey).",
        ),
        ("Failed to connect to the host via ssh: ssh: connect to host x port 22: Connection refused",
         "ssh: connect to host x port 22: Connection refused"),
        ('Task failed: Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over ssh: ',
         "the connection to 10.0.0.1 broke in the middle of the task"),
        (("Task failed: Data could not be sent to remote host '10.0.0.1'. Make sure this host can be reached over SSH: "
          "[Errno 32] Broken pipe"), "the connection to 10.0.0.1 ended before the task was sent"),
        ("Action failed: the answer is 42", "the answer is 42"),
        ("", "failed without a message"),
    ],
)  # fmt: skip
def test_what_ansible_wraps_around_a_message_is_taken_off(message: str, expected: str) -> None:
    assert result("runner_on_failed", res={"msg": message}).message == expected


def test_a_failed_program_is_quoted_by_its_last_lines() -> None:
    output = "\n".join(f"line {number}" for number in range(100))
    message = result("runner_on_failed", res={"msg": "non-zero return code", "stderr": output}).message
    assert message.startswith("non-zero return code: line 92\n")
    assert message.endswith("line 99")


def test_a_loop_names_its_failed_items_and_says_the_same_once() -> None:
    good = {"failed": False, "item": "a", "msg": ""}
    one = {"failed": True, "item": "b", "msg": "no b"}
    two = {"failed": True, "item": "c", "msg": "no c"}
    assert result("runner_on_failed", res={"results": [good, one], "msg": "x"}).message == "b: no b"
    assert result("runner_on_failed", res={"results": [one, two], "msg": "x"}).message == "b: no b\nc: no c"
    same = {**two, "msg": "no b"}
    assert result("runner_on_failed", res={"results": [one, same], "msg": "x"}).message == "no b"


def test_a_failed_item_is_known_by_its_exception_too() -> None:
    good = {"item": "a", "msg": ""}
    bad = {"item": "b", "msg": "It failed.", "stderr": "no b", "exception": "(traceback unavailable)"}
    assert result("runner_on_failed", res={"results": [good, bad], "msg": "x"}).message == "b: It failed: no b"


def test_a_message_has_an_end() -> None:
    assert len(result("runner_on_failed", res={"msg": "x" * 100_000}).message) < MAX_MESSAGE + 10


def test_modules_hand_back_data_hints_and_warnings() -> None:
    res = {
        "msg": "broken",
        "hint": "change the card",
        "deepops": {"checks": [1]},
        "deepops_warnings": ["old disk"],
        "warnings": ["odd mode"],
        "deprecations": [{"msg": "say it otherwise", "version": "2.24"}],
    }
    actual = result("runner_on_failed", res=res)
    assert actual.hint == "change the card"
    assert actual.data == ({"checks": [1]},)
    assert actual.warnings == ("old disk", "odd mode", "deprecated: say it otherwise")


def test_data_of_loop_items_is_found_as_well() -> None:
    res = {"results": [{"deepops": {"a": 1}}, {"deepops": {"a": 2}}, "odd"]}
    assert result("runner_on_ok", res=res).data == ({"a": 1}, {"a": 2})


def test_a_difference_comes_without_the_tasks_banner() -> None:
    printed = "\r\nTASK [Write] ***\r\n--- before\r\n+++ after: /etc/x\r\n@@ -0,0 +1 @@\r\n+new\r\n"
    expected = "--- before\n+++ after: /etc/x\n@@ -0,0 +1 @@\n+new"
    assert parse(raw("runner_on_file_diff", printed)) == Difference("gpu01", "slurm", "Install", expected)
    assert parse(raw("runner_on_file_diff", "\r\n")) is None


def test_the_recap_has_every_host_and_ansibles_count() -> None:
    data: dict[str, Any] = {
        "ok": {"a": 3},
        "changed": {"a": 1},
        "dark": {"b": 1},
        "processed": {"a": 1, "b": 1, "c": 1},
        "rescued": {},
    }
    assert parse(raw("playbook_on_stats", **data)) == Recap(
        {"a": Totals(ok=3, changed=1), "b": Totals(unreachable=1), "c": Totals()}
    )


def test_warnings_outside_tasks_are_notices() -> None:
    assert parse(raw("deprecated", "[DEPRECATION WARNING]: old")) == Notice("deprecation", "[DEPRECATION WARNING]: old")
    assert parse(raw("warning", "")) is None


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"event": None, "event_data": None},
        {"event": "runner_on_ok", "event_data": "text"},
        {"event": "runner_on_failed", "event_data": {"res": []}},
        {"event": "runner_on_failed", "event_data": {"res": {"results": {"a": 1}, "warnings": 7, "deprecations": [3]}}},
        {"event": "runner_on_ok", "created": 12, "event_data": {"duration": "long", "res": {"deepops": "text"}}},
        {"event": "playbook_on_stats", "event_data": {"ok": 3, "processed": None}},
        {"event": "EOF"},
    ],
)
def test_malformed_events_never_raise(event: dict[str, Any]) -> None:
    parse(event)
