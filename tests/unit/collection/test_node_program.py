"""The action plugin that runs node programs: what it makes of their output, and how it repeats a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from deepopsctl.node_programs._shared.program import RESULT_MARK
from deepopsctl.run.events import ModuleMessage, parse as parse_event
from deepopsctl.run.progress import Progress
from tests.support import node_modules as nodeside

ACTION = nodeside.plugin("action", "node_program")


def answer(stdout: str = "", stderr: str = "", rc: int = 0) -> dict[str, Any]:
    return {"rc": rc, "stdout": stdout, "stderr": stderr}


class TestOutput:
    def test_a_result_is_read_among_what_a_site_prints_at_login(self) -> None:
        text = f"Welcome to gpu01\n{RESULT_MARK}" + '{"deepops": {"checks": []}}\nlogout\n'

        assert ACTION.parse("burn_in", answer(text)) == {"deepops": {"checks": []}}

    @pytest.mark.parametrize(
        ("output", "message"),
        [
            (answer("Password expired\n"), "the node program burn_in printed no result: Password expired"),
            (answer(), "the node program burn_in printed no result: nothing at all"),
            (answer(RESULT_MARK + "[1]"), f"the node program burn_in printed no result: {RESULT_MARK}[1]"),
            (answer(RESULT_MARK + '{"a'), "the node program burn_in printed no result: " + RESULT_MARK + '{"a'),
            (answer("hello", "Traceback ...\nKeyError: 'phase'\n", 1), "KeyError: 'phase'"),
            (answer("", "sh: 1: /usr/bin/python3: not found", 127), "sh: 1: /usr/bin/python3: not found"),
            (answer(rc=-9), "the node program burn_in exits -9"),
        ],
    )
    def test_anything_else_is_a_failure_that_says_what_came(self, output: dict[str, Any], message: str) -> None:
        result = ACTION.parse("burn_in", output)

        assert (result["failed"], result["msg"]) == (True, message)


class Repeated:
    """The plugin's next call with answers given beforehand; its pauses take no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.clock, self.shown = 0.0, list[str]()
        self.requests: list[dict[str, Any]] = []
        self._answers = iter(answers)
        monkeypatch.setattr(ACTION.time, "sleep", self._sleep)
        monkeypatch.setattr(ACTION.time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(ACTION, "Display", lambda: self)
        self.plugin = ACTION.ActionModule.__new__(ACTION.ActionModule)
        self.plugin._name, self.plugin._shown = "burn_in", ""
        self.plugin._call = self._call

    def _sleep(self, pause: float) -> None:
        self.clock += pause

    def display(self, text: str) -> None:
        self.shown.append(text)

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        result = next(self._answers)
        if isinstance(result, Exception):
            raise result
        return dict(result)

    def next(self, progress: str = "half") -> Any:
        again = {"after_s": 20.0, "input": {"state": 2}, "progress": progress, "lost": "squeue shows the jobs"}
        return self.plugin._next({"phase": "load", "state": 1}, again, 60.0)


LOST = AnsibleConnectionFailure("ssh: gone")
Maker = Callable[..., Repeated]


class TestRepeatedCalls:
    @pytest.fixture
    def repeated(self, monkeypatch: pytest.MonkeyPatch) -> Maker:
        return lambda *answers: Repeated(monkeypatch, *answers)

    def test_a_program_is_called_again_with_its_own_state_after_its_pause(self, repeated: Maker) -> None:
        call = repeated({"deepops": {}})

        assert call.next() == {"deepops": {}}
        assert call.requests == [{"phase": "load", "state": 2}]
        assert call.clock == 20.0

    def test_a_connection_or_a_call_that_fails_meanwhile_loses_nothing(self, repeated: Maker) -> None:
        call = repeated(LOST, {"failed": True, "msg": "slurmctld is away"}, {"deepops": {}})

        assert call.next() == {"deepops": {}}

    def test_work_that_has_failed_is_not_asked_for_again(self, repeated: Maker) -> None:
        failed = {"failed": True, "final": True, "msg": "slurmdbd does not run: out of memory"}
        call = repeated(failed, {"deepops": {}})

        assert call.next() == failed

    def test_a_node_that_stays_away_is_an_error_that_says_where_the_work_is(self, repeated: Maker) -> None:
        call = repeated(*[LOST] * 100)

        with pytest.raises(AnsibleConnectionFailure, match=r"squeue shows the jobs \(ssh: gone\)"):
            call.next()
        assert 60.0 < call.clock < 90.0

    def test_progress_is_shown_once(self, repeated: Maker) -> None:
        call = repeated({}, {}, {})

        for progress in ("half", "half", "done"):
            call.next(progress)

        assert call.shown == ["deepopsctl: half", "deepopsctl: done"]

    def test_the_first_answer_is_asked_for_again_where_it_was_lost(self, repeated: Maker) -> None:
        call = repeated(LOST, LOST, {"failed": True, "msg": "no Slurm here"})

        assert call.plugin._first({}, {"patience": 60.0})["msg"] == "no Slurm here"

    def test_a_line_of_a_program_reaches_the_person_at_once(self) -> None:
        raw = {"event": "verbose", "stdout": ACTION.SHOWN + "burn-in: 1 ended", "event_data": {}}

        event = parse_event(raw)

        assert event == ModuleMessage("burn-in: 1 ended")
        assert Progress().add(event) == ["burn-in: 1 ended"]
        assert parse_event({**raw, "stdout": "anything else"}) is None
