"""The GPU suite on the control machine, and its history."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.checks.check import Check, Status, parse_check
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Access, Cluster, Gpus, Node, Role
from deepopsctl.node_programs.suites.gpu_check.document import read_results
from deepopsctl.node_programs.suites.gpu_check.evaluation import evaluate
from deepopsctl.node_programs.suites.gpu_check.rates import METRICS
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import TaskResult
from deepopsctl.run.workspace import RunDir
from deepopsctl.validation.gpu import RUN_FILE, earlier_results, save_results, with_gpus
from deepopsctl.validation.result import Validation, examine, exit_code_of
from tests.data.gpu_check_samples import Result, gpu, measured, result, without_driver
from tests.support.runs import run_of

JOB = {"suite": "gpu", "name": "gpu-job", "target": "gpu01", "status": "pass"}
WHEN = datetime(2026, 11, 21, tzinfo=UTC)


def cluster(count: int = 8, kind: str = "h100") -> Cluster:
    compute = frozenset({Role.COMPUTE})
    nodes = (Node("cpu01", compute), *(Node(name, compute, gpus=Gpus(kind, count)) for name in ("gpu01", "gpu02")))
    return Cluster("hpc", Access("ubuntu"), nodes, ())


def validated(directory: Path, run: str, *results: Any) -> tuple[Validation, tuple[str, ...]]:
    """A run in this cluster directory whose module handed these results back."""
    place = directory / "runs" / run
    place.mkdir(parents=True)
    data = {"checks": [JOB], "gpus": list(results)}
    outcome = run_of(TaskResult("ctl1", "Test the GPUs", data), directory=place, hosts={"ctl1": Totals(ok=2)})
    return with_gpus(examine(outcome, cluster(), ("gpu",), WHEN), cluster(), ClusterDir(directory))


def actual(validation: Validation, name: str, target: str) -> Check:
    (check,) = [check for check in validation.facts.checks if (check.name, check.target) == (name, target)]
    return check


def test_results_are_evaluated_next_to_the_checks_of_the_jobs(tmp_path: Path) -> None:
    validation, notes = validated(tmp_path, "20261121-120000-validate", result("gpu01"), result("gpu02"))

    assert actual(validation, "gpu-job", "gpu01").status is Status.PASS
    assert actual(validation, "gpu-memory-copy", "gpu02/7").status is Status.PASS
    assert [entry["node"] for entry in validation.facts.gpus] == ["gpu01", "gpu02"]
    assert validation.exit_code is ExitCode.OK
    assert notes == ()


def test_a_gpu_that_lost_speed_since_an_earlier_run_is_named(tmp_path: Path) -> None:
    validated(tmp_path, "20261121-120000-validate", result("gpu01"))
    slow = [gpu(index, measured=measured(copy=2690.0 if index == 5 else 3000.0)) for index in range(8)]

    validation, _ = validated(
        tmp_path, "20261122-120000-validate", result("gpu01", slow, when="2026-11-22T12:00:00+00:00")
    )

    check = actual(validation, "gpu-memory-copy", "gpu01/5")
    assert check.status is Status.WARN
    assert "down 10% since 2026-11-21" in check.message


def test_a_node_without_a_driver_fails_where_cluster_yml_has_gpus(tmp_path: Path) -> None:
    validation, _ = validated(tmp_path, "20261121-120000-validate", without_driver("gpu01"))

    assert actual(validation, "gpu-driver", "gpu01").status is Status.FAIL
    assert validation.exit_code is ExitCode.FAILED


def test_a_run_without_gpu_results_is_left_as_it_is(tmp_path: Path) -> None:
    validation, notes = validated(tmp_path, "20261121-120000-validate")

    assert [check.name for check in validation.facts.checks] == ["gpu-job"]
    assert notes == ()
    assert not (tmp_path / "runs/20261121-120000-validate/gpu.json").exists()


def test_a_validation_that_tested_nothing_has_failed() -> None:
    nothing = Check("gpu", "gpu-nodes", "hpc", Status.SKIP, message="nothing to test")
    warned = Check("gpu", "gpu-job", "gpu01", Status.WARN)
    summary = run_of().summary

    assert exit_code_of(ExitCode.OK, [nothing], summary) is ExitCode.FAILED
    assert exit_code_of(ExitCode.OK, [], summary) is ExitCode.FAILED
    assert exit_code_of(ExitCode.OK, [nothing, warned], summary) is ExitCode.OK


FIRST, SECOND, THIRD, FOURTH = (f"2026-11-{day:02d}T08:00:00+00:00" for day in (3, 10, 17, 24))


def compare(directory: ClusterDir, *results: Result) -> tuple[list[Check], tuple[str, ...]]:
    """One validation: compared with the past ones, then saved."""
    checks = [parse_check(check) for check in evaluate(results, earlier_results(directory).results)]
    run_dir = RunDir(directory.runs / f"2026{len(list(directory.runs.iterdir())):04d}-080000-validate")
    run_dir.path.mkdir()
    return checks, save_results(directory, run_dir, results, checks)


def copying(gb_s: float, when: str, node: str = "gpu01", index: int = 3) -> Result:
    """One card, the same wherever it sits, and what it copies."""
    card = {"uuid": "GPU-A", "serial": "1650000000003", "measured": measured(copy=gb_s)}
    return result(node, [gpu(index, **card)], when=when)


def text_of(checks: Iterable[Check], name: str = "gpu-memory-copy") -> str:
    (actual,) = [check for check in checks if check.name == name]
    return f"{actual.status}: {actual.message}"


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    (tmp_path / "runs").mkdir()
    return ClusterDir(tmp_path)


def together(gb_s: float, when: str) -> Result:
    """Two nodes, and what all-reduce between them gave."""
    points = {"status": "measured", "ranks": 16, "all_reduce": [{"bytes": 2**30, "gb_s": gb_s}]}
    return result("gpu01", [], when=when, group={"all_reduce_nodes": {"nodes": "gpu[01-02]", **points}})


class TestNodesTogether:
    def test_nodes_that_got_slower_say_since_when_and_stay_compared_with_what_they_were(
        self, directory: ClusterDir
    ) -> None:
        compare(directory, together(380.0, FIRST), copying(3060, FIRST))
        compare(directory, together(300.0, SECOND))

        checks, _ = compare(directory, together(310.0, THIRD))

        assert text_of(checks, "gpu-all-reduce-nodes").startswith("warn: gpu[01-02]: 16 ranks")
        assert "down 18% since 2026-11-03" in text_of(checks, "gpu-all-reduce-nodes")
        assert len(directory.gpu_history.read_text().splitlines()) == 3

    def test_what_was_well_again_is_the_new_measure(self, directory: ClusterDir) -> None:
        compare(directory, together(380.0, FIRST))
        compare(directory, together(379.0, SECOND))

        checks, _ = compare(directory, together(378.0, THIRD))

        assert "down 0% since 2026-11-10" in text_of(checks, "gpu-all-reduce-nodes")


CARD = "(NVIDIA H100 80GB HBM3, serial 1650000000003): down 12% since"


class TestFollowing:
    @pytest.mark.parametrize(
        ("past", "now", "warning"),
        [
            ([copying(3060, FIRST), copying(2693, SECOND)], copying(2693, THIRD), f"gpu01 GPU 3 {CARD} 2026-11-03"),
            ([copying(3060, SECOND), copying(3055, FIRST)], copying(2693, THIRD), f"gpu01 GPU 3 {CARD} 2026-11-10"),
            ([copying(3060, FIRST)], copying(2693, SECOND, "gpu09", 0), f"gpu09 GPU 0 {CARD} 2026-11-03"),
        ],
        ids=["stays slow", "a result that comes late", "moved to another node"],
    )
    def test_a_slow_card_is_compared_with_its_newest_good_result(
        self, directory: ClusterDir, past: list[Result], now: Result, warning: str
    ) -> None:
        for earlier in past:
            compare(directory, earlier)

        checks, _ = compare(directory, now)

        assert text_of(checks).startswith(f"warn: {warning}")

    def test_steps_that_each_look_well_do_not_move_the_measure(self, directory: ClusterDir) -> None:
        steps = (3300, 3218, 3138, 3060, 2985, 2912)
        for day, gb_s in enumerate(steps, 1):
            checks, _ = compare(directory, copying(gb_s, f"2026-11-{day:02d}T08:00:00+00:00"))
            assert text_of(checks).startswith("pass")

        checks, _ = compare(directory, copying(2840, FOURTH))

        assert "down 12% since 2026-11-02" in text_of(checks)

    def test_a_card_that_was_never_well_has_no_past(self, directory: ClusterDir) -> None:
        checks, _ = compare(directory, copying(1500, FIRST))

        assert text_of(checks).startswith("fail")
        assert "copy_gb_s" not in json.dumps(earlier_results(directory).results)

    def test_every_rate_is_kept_and_read_back_as_it_was(self, directory: ClusterDir) -> None:
        whole = {**measured(), "bf16_gemm": {"status": "measured", "bf16_gemm_tflop_s": 860.0}}
        compare(directory, result(gpus=[gpu(3, measured=whole)], when=FIRST))

        checks, _ = compare(directory, result(gpus=[gpu(3, measured=whole)], when=SECOND))

        assert [
            text_of(checks, metric.name) for metric in METRICS if "up 0% since" not in text_of(checks, metric.name)
        ] == []


class TestKeeping:
    def test_the_history_outlives_the_runs(self, directory: ClusterDir) -> None:
        compare(directory, copying(3060, FIRST))
        for run_dir in directory.runs.iterdir():
            (run_dir / RUN_FILE).unlink()

        checks, _ = compare(directory, copying(2693, SECOND))

        assert "since 2026-11-03" in text_of(checks)

    def test_a_run_keeps_what_gpucheck_itself_can_read(self, directory: ClusterDir) -> None:
        compare(directory, copying(3060, FIRST))
        (kept,) = directory.runs.glob(f"*/{RUN_FILE}")

        assert read_results(kept) == [copying(3060, FIRST)]
        assert kept.stat().st_mode & 0o777 == 0o600

    def test_a_lab_whose_gpus_are_simulated_leaves_no_history(self, directory: ClusterDir) -> None:
        compare(directory, result("gpu01", [], versions={}, group={}, problem="no driver"))

        assert not directory.gpu_history.exists()

    def test_what_did_not_change_is_not_written_again(self, directory: ClusterDir) -> None:
        compare(directory, copying(3060, FIRST))
        before = directory.gpu_history.stat().st_ino

        compare(directory, copying(3060, FIRST))

        assert directory.gpu_history.stat().st_ino == before


class TestDamage:
    @pytest.mark.parametrize("text", ["<<<<<<< HEAD\n", "[]", '{"schema": 1}\n', '{"kind": "gpu-history"}', "\x00", ""])
    def test_a_file_that_is_no_history_is_named_set_aside_and_made_again_from_the_runs(
        self, directory: ClusterDir, text: str
    ) -> None:
        compare(directory, copying(3060, FIRST))
        directory.gpu_history.write_text(text)

        assert "gpu-history.jsonl can't be read" in earlier_results(directory).warnings[0]
        checks, notes = compare(directory, copying(2693, SECOND))

        assert "since 2026-11-03" in text_of(checks)
        assert notes == (
            "gpu-history.jsonl could not be read: it was renamed to gpu-history.jsonl.damaged and replaced",
        )
        assert (directory.path / "gpu-history.jsonl.damaged").read_text() == text
        assert earlier_results(directory).warnings == ()

    @pytest.mark.parametrize(
        "line",
        [
            '{"uuid": "GPU-A", "na',
            "3",
            "",
            '{"uuid": "GPU-A", "name": "x"}',
            '{"uuid": "GPU-A", "name": "", "serial": "", "node": "n", "index": 0, "rates": [1]}',
            '{"uuid": "GPU-A", "name": "", "serial": "", "node": "n", "index": "x", "rates": {}}',
        ],
    )
    def test_of_a_damaged_history_the_good_lines_stay(self, directory: ClusterDir, line: str) -> None:
        compare(directory, copying(3060, FIRST))
        for kept in directory.runs.glob(f"*/{RUN_FILE}"):
            kept.unlink()
        with directory.gpu_history.open("a") as file:
            file.write(line + "\n")

        assert "line 3" in earlier_results(directory).warnings[0]
        checks, _ = compare(directory, copying(2693, SECOND))

        assert "since 2026-11-03" in text_of(checks)
        assert earlier_results(directory).warnings == ()

    def test_a_full_disk_is_a_note_and_no_end_of_the_validation(
        self, directory: ClusterDir, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_options: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("deepopsctl.validation.gpu.write_atomic", full)

        assert "can't be written (No space left on device)" in compare(directory, copying(3060, FIRST))[1][0]

    def test_a_history_of_a_newer_program_is_left_alone(self, directory: ClusterDir) -> None:
        text = '{"schema": 2, "kind": "gpu-history"}\nsomething else'
        directory.gpu_history.write_text(text)

        assert "a newer deepopsctl wrote it" in earlier_results(directory).warnings[0]
        compare(directory, copying(3060, FIRST))
        assert directory.gpu_history.read_text() == text

    @pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1, "command": "gpucheck", "results": [{"gpus": 7}]}'])
    def test_a_damaged_run_is_named_and_the_others_are_read(self, directory: ClusterDir, text: str) -> None:
        for when in (FIRST, SECOND):
            compare(directory, copying(3060, when))
        directory.gpu_history.unlink()
        newest = max(directory.runs.glob(f"*/{RUN_FILE}"))
        newest.write_text(text)

        actual = earlier_results(directory)

        assert newest.parent.name in actual.warnings[0]
        assert [entry["when"] for entry in actual.results] == [FIRST]


def test_a_thousand_cards_make_a_file_that_fits_into_git(directory: ClusterDir) -> None:
    from deepopsctl.validation.gpu import render, update_history

    nodes: list[Any] = [
        result(f"gpu{n}", [gpu(i, uuid=f"GPU-{n:032d}-{i}") for i in range(8)], when=FIRST) for n in range(125)
    ]
    text = render(update_history({}, nodes, ()))

    assert text.count("\n") == 1001
    assert len(text) < 800_000
