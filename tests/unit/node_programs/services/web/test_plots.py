"""A job's use over time: what Prometheus is asked, for whom, and the lines that come of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.commands.job_report import prometheus
from deepopsctl.node_programs.commands.job_report.prometheus import PrometheusError
from deepopsctl.node_programs.services.web import agent, course, own_jobs, plot, views
from deepopsctl.node_programs.services.web.offer import RefusedError
from tests.unit.node_programs.services.web.test_own_jobs import slurm
from tests.unit.node_programs.services.web.test_pages import page

START, END = 1796000000, 1796000100
WHY = {"why": {"job": "5", "user": "alice", "state": "ended", "headline": "it ended", "causes": []}}


def series(figure: str, *values: float) -> dict[str, Any]:
    return {"metric": {"figure": figure}, "values": [[START + 15 * i, str(each)] for i, each in enumerate(values)]}


def asks(*of: dict[str, Any]) -> tuple[prometheus.Ask, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []

    def ask(kind: str, parameters: Any) -> list[dict[str, Any]]:
        assert kind == "query_range"
        asked.append(dict(parameters))
        return list(of)

    return ask, asked


def test_one_question_asks_for_one_job_within_its_time() -> None:
    ask, asked = asks(series("cpu.used", 1, 2), series("cpu.asked", 4, 4), series("gpu.asked", 1), series("x.used", 1))

    answer = course.read(5, START, END, ask)

    (question,) = asked
    assert set(re.findall(r"\{[^}]*\}", question["query"])) == {'{jobid="5"}'}
    assert (question["start"], question["end"], question["step"]) == (START, END, 15)
    # without a sample of its use there is no plot
    assert list(answer["of"]) == ["cpu"]


def test_a_long_job_has_no_more_points_and_reads_a_part_of_each() -> None:
    ask, asked = asks()

    course.read(5, START, START + 30 * 86400, ask)

    assert asked[0]["step"] == 30 * 86400 // course.POINTS
    assert "[600s]" in asked[0]["query"]


@pytest.mark.parametrize(
    "wrong",
    [{"number": '5"} or x{a="'}, {"number": 0}, {"number": -5}, {"start": END}, {"end": "1e99"}, {"end": 1 << 40}],
)  # fmt: skip
def test_only_numbers_get_into_the_question(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_words: str) -> prometheus.Ask:
        raise AssertionError

    monkeypatch.setattr(prometheus, "asking", never)

    with pytest.raises((RefusedError, ValueError)):
        agent.job_course({"number": 5, "start": START, "end": END, **wrong}, "/nowhere")


def test_an_administrators_address_is_not_in_what_users_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "monitoring.json"
    config.write_text(json.dumps({"url": "http://mon:9090", "user": "u", "password": "p"}), encoding="utf-8")

    def silent(*_words: Any) -> list[Any]:
        raise PrometheusError("http://mon:9090: refused")

    monkeypatch.setattr(prometheus, "asking", lambda *_words: silent)

    with pytest.raises(RefusedError, match=r"^Monitoring gives no answer now$"):
        agent.job_course({"number": 5, "start": START, "end": END}, str(config))
    assert "mon:9090" in capsys.readouterr().err
    # and it is not taken for Slurm's controller
    assert views.trouble("Monitoring gives no answer now") == "Monitoring gives no answer now"


@pytest.mark.parametrize(
    ("user", "accounts", "own"), [("alice", "", True), ("bob", "def-lab", True), ("mallory", "def-evil", False)]
)
def test_whose_a_job_is_decides_about_its_course(user: str, accounts: str, own: bool) -> None:
    def ask(argv: list[str], *words: Any, **named: Any) -> Result:
        if argv[0] == own_jobs.WHY:
            return Result(argv[0], 0, json.dumps(WHY["why"]), "", 0.0)
        if argv[0] == "sacctmgr":
            return Result(argv[0], 0, accounts + "\n", "", 0.0)
        return slurm(argv, *words, **named)

    answer = own_jobs.explained("5", user, ask)

    assert answer["use"]["own"] is own
    assert views.has_course(answer["use"]) is own
    grafana = views.one_job(answer, None, "https://grafana")["grafana"]
    assert grafana == (f"https://grafana/d/deepops-jobs?var-jobid=5&from={START}000&to={END}000" if own else "")


def test_a_job_that_slurm_hides_has_no_course() -> None:
    def ask(argv: list[str], *words: Any, **named: Any) -> Result:
        if argv[0] == own_jobs.WHY:
            return Result(argv[0], 1, "", "error: job 5: Slurm knows none that you may see", 0.0)
        return slurm(argv, *words, **named)

    assert "use" not in own_jobs.explained("5", "mallory", ask)
    assert not views.has_course(None)


def test_times_without_samples_are_gaps_in_the_line() -> None:
    points = [(START, 1.0), (START + 15, 2.0), (START + 60, 2.0), (START + 90, 4.0), (START + 105, 4.0)]

    drawn = plot.draw({"used": points, "asked": [(START, 4.0), (START + 105, 4.0)]}, START, END, 15, str)

    assert [len(line.split()) for line in drawn["lines"]] == [2, 2, 2]
    assert drawn["lines"][0] == f"0.0,{150 * (1 - 1 / 4.32):.1f} 90.0,{150 * (1 - 2 / 4.32):.1f}"
    assert drawn["areas"][0].endswith(" 90.0,150.0")
    assert (drawn["average"], drawn["most"], drawn["top"]) == ("2.6", "4.0", "4.0")


def test_a_job_that_used_nothing_has_a_plot() -> None:
    drawn = plot.draw({"used": [(START, 0.0)]}, START, START, 15, str)

    assert drawn["lines"] == ["0.0,150.0 4200.0,150.0"]


@pytest.mark.parametrize(
    ("values", "minutes", "notified"),
    [
        ((0.0, 0.0), 60, True),
        ((0.0, 0.5), 60, False),
        ((), 60, False),
        ((0.0, 0.0), 0, False),
        ((0.0, 0.0), 120, False),
    ],
)
def test_a_running_job_whose_gpus_do_nothing_says_so(values: tuple[float, ...], minutes: int, notified: bool) -> None:
    use = {"start": START, "end": START + 5400, "gpus": 2}
    points = [(START + 4000 + place, value) for place, value in enumerate(values)]

    assert bool(views._idle(use, {"of": {"gpu": {"used": points}}}, minutes)) is notified


def shown(of: dict[str, Any], **more: Any) -> str:
    def ask(argv: list[str], *words: Any, **named: Any) -> Result:
        return Result(argv[0], 0, json.dumps(WHY["why"]), "", 0.0) if argv[0] == own_jobs.WHY else slurm(argv, *words)

    answer = own_jobs.explained("5", "alice", ask)
    return page("job.html", job="5", **views.one_job(answer, {"step": 15, "of": of, **more}, ""))


def test_the_page_has_sums_without_monitoring_and_lines_with_it() -> None:
    plain = shown({})
    lines = shown({"cpu": {"used": [(START, 1.0), (START + 15, 1.5)], "asked": [(START, 2.0), (START + 15, 2.0)]}})

    for text in (plain, lines):
        assert "50 %: 1 core of 2 cores" in text
    assert "<polyline" not in plain
    assert "Cores over time: 1.2 cores on average, 1.5 cores at most" in lines
    assert "<td>1.5 cores</td><td>2 cores</td>" in lines
    assert "Monitoring gives no answer now: there are sums only" in shown({}, trouble="Monitoring gives no answer now")
    # the policy lets none through
    assert "style=" not in lines
