"""Reports of ReFrame as checks, in the form that ReFrame 4.10 writes, and what it is given."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.validate_local import reframe


def case(**changed: Any) -> dict[str, Any]:
    return {
        "name": "HelloTest", "display_name": "HelloTest %size=2", "descr": "says hello", "partition": "batch",
        "result": "pass", "fail_reason": None, "job_nodelist": ["cn01", "cn02"],
        "perfvalues": {"cluster:batch:rate": [12.5, 10, -0.1, None, "GB/s", "pass"]}, **changed,
    }  # fmt: skip


def evaluated(*cases: dict[str, Any], problem: str = "") -> dict[str, Any]:
    return reframe.evaluate({"runs": [{"testcases": list(cases)}]}, problem, "hpc", 0.85)


def test_a_test_case_is_a_check_on_its_nodes_and_a_figure_a_rate() -> None:
    made = evaluated(case(), case(result="fail", fail_reason="sanity error: no pattern", job_nodelist=None))

    assert [(each["name"], each["target"], each["status"], each["message"]) for each in made["checks"]] == [
        ("hello-test-size-2", "cn[01-02]", "pass", "says hello in the partition batch"),
        ("hello-test-size-2", "batch", "fail", "sanity error: no pattern"),
    ]
    (rate,) = made["rates"]
    assert (rate["name"], rate["value"], rate["unit"], rate["low"]) == ("hello-test-size-2-rate", 12.5, "GB/s", False)


def test_of_a_figure_with_an_upper_bound_less_is_better() -> None:
    made = evaluated(case(perfvalues={"cluster:batch:wait_time": [3.0, 4, None, 0.2, "s", "pass"]}))

    assert [(each["name"], each["low"]) for each in made["rates"]] == [("hello-test-size-2-wait-time", True)]


@pytest.mark.parametrize(
    ("problem", "status"), [("reframe is not installed", "skip"), ("error: can't load a.py", "fail")]
)
def test_a_run_without_a_report_says_why(problem: str, status: str) -> None:
    (check,) = reframe.evaluate({}, problem, "hpc", 0.85)["checks"]

    assert check["status"] == status


def test_suites_are_written_next_to_the_configuration(tmp_path: Path) -> None:
    files = {"lib/a.py": base64.b64encode(b"x = 1").decode()}

    reframe.write_files(str(tmp_path), files, reframe.configuration(["batch"], "quiet"))

    assert (tmp_path / "suites" / "lib" / "a.py").read_text() == "x = 1"
    values: dict[str, Any] = {}
    exec((tmp_path / "settings.py").read_text(), values)  # noqa: S102 (our own)
    (partition,) = values["site_configuration"]["systems"][0]["partitions"]
    assert partition["access"] == ["--partition=batch", "--reservation=quiet"]
    # a site's own wins
    own = {"settings.py": base64.b64encode(b"y = 2").decode()}
    reframe.write_files(str(tmp_path), own, "")
    assert (tmp_path / "settings.py").read_text() == "y = 2"
