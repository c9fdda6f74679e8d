"""Which job keeps others from their summaries: none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.commands.job_report.keeping import Keeper
from deepopsctl.node_programs.commands.job_report.prometheus import PrometheusError
from deepopsctl.node_programs.commands.job_report.records import DELIMITER

NOW = 10_000
ROWS = [[number, "COMPLETED", str(end), "600", ""] for number, end in (("7", 9_000), ("8", 9_100))]


class Slurm:
    """Jobs 7 and 8, and what was written of them."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def __call__(self, argv: Sequence[str]) -> str:
        if argv[0] == "sacctmgr":
            self.written.append(argv[5])
            return ""
        rows = [[row[0], row[2]] for row in ROWS] if argv[-1] == "--format=JobIDRaw,End" else ROWS
        return "".join(DELIMITER.join(row) + "\n" for row in rows)


def query(text: str, _at: int) -> list[dict[str, Any]]:
    if 'jobid="7"' in text:
        raise PrometheusError("too many samples")
    return [{"metric": {"figure": "cores", "node": "n1"}, "value": [0, "1.5"]}]


def down(_text: str, _at: int) -> list[dict[str, Any]]:
    raise PrometheusError("no connection")


def test_a_job_that_prometheus_can_not_answer_for_does_not_hold_up_the_others(tmp_path: Path) -> None:
    slurm, state = Slurm(), tmp_path / "state.json"

    assert Keeper(str(state), slurm, query, lambda: NOW).round() == 1

    assert slurm.written == ["jobid=8"]
    assert json.loads(state.read_text())["until"] > 9_100


def test_while_prometheus_is_down_no_job_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(PrometheusError):
        Keeper(str(tmp_path / "state.json"), Slurm(), down, lambda: NOW).round()
    assert not (tmp_path / "state.json").exists()
