from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared.waiting import wait_until
from deepopsctl.run import fan_out


def call(node: str, script: str, timeout_s: float = 30, begin_s: float = 0) -> fan_out.Call:
    return fan_out.Call(node, ["sh", "-c", script], b"input\n", timeout_s, begin_s=begin_s)


def test_an_answer_has_the_time_of_the_question() -> None:
    before = time.time()
    answer = fan_out.ask_all([call("n1", "cat; echo why >&2; exit 3")], width=1)["n1"]

    assert (answer.status, answer.output, answer.errors, answer.late) == (3, b"input\n", "why\n", False)
    assert before <= answer.began <= answer.ended <= time.time()


def test_one_that_does_not_begin_is_given_up_early_and_one_that_has_begun_is_not() -> None:
    calls = [
        call("silent", "sleep 60", begin_s=0.3),
        call("begun", "echo begun; sleep 0.8; echo done", begin_s=0.3),
        call("hangs", "echo begun; sleep 60", timeout_s=1),
    ]

    answers = fan_out.ask_all(calls, width=3)

    assert (answers["silent"].late, answers["silent"].output) == (True, b"")
    assert (answers["begun"].status, answers["begun"].output) == (0, b"begun\ndone\n")
    assert (answers["hangs"].late, answers["hangs"].output) == (True, b"begun\n")


def test_nodes_that_have_begun_keep_no_other_from_being_asked(tmp_path: Path) -> None:
    """Each ends when all four have begun."""
    script = f"echo begun; touch {tmp_path}/$$; until [ $(ls {tmp_path} | wc -l) = 4 ]; do sleep 0.05; done"

    answers = fan_out.ask_all([call(name, script) for name in ("n1", "n2", "n3", "n4")], width=1)

    assert [answer.status for answer in answers.values()] == [0, 0, 0, 0]


def test_all_answers_together_are_bounded_and_the_largest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is below what one node may send."""
    monkeypatch.setattr(fan_out, "TOGETHER", 1 << 20)
    monkeypatch.setattr(fan_out, "TOGETHER_EACH", 0)
    sent = {"first": 100_000, "large": 1_000_000, "small": 1000}
    calls = [call(name, f"head -c {size} /dev/zero; sleep 0.3") for name, size in sent.items()]

    answers = fan_out.ask_all(calls, width=3)

    assert {name: answer.status for name, answer in answers.items()} == {"first": 0, "large": None, "small": 0}


def test_a_call_is_made_when_its_turn_comes() -> None:
    """What the doctor sends to each of 5,000 nodes has the names of all."""
    made: list[str] = []

    def calls() -> Iterator[fan_out.Call]:
        for name in ("n1", "n2", "n3"):
            made.append(name)
            yield call(name, "sleep 60")

    fan_out.ask_all(calls(), width=2, stopped=lambda: len(made) > 1)

    assert made == ["n1", "n2"]


def test_the_time_in_which_this_machine_ran_no_ssh_is_not_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "starved_s", lambda _pid: 60)

    answer = fan_out.ask_all([call("n1", "sleep 1; echo done", timeout_s=0.2)], width=1)["n1"]

    assert (answer.status, answer.output, answer.starved_s) == (0, b"done\n", 60)


def test_a_process_that_waits_for_a_processor_is_known_to() -> None:
    """Two at one processor: each waits while the other one runs."""
    (processor, *_) = os.sched_getaffinity(0)
    busy = f"import os; os.sched_setaffinity(0, [{processor}])\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(2)]
    try:
        assert wait_until(lambda: all(fan_out.starved_s(each.pid) > 0.2 for each in both), 60, 0.05)
    finally:
        for each in both:
            each.kill()
            each.wait()
