"""GPU results of a run: judged once for all nodes, kept with the run, compared with what was kept before."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deepopsctl.checks.check import Check, Status
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Access, Cluster, Gpus, Node, Role
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import RunOutcome, RunSummary, TaskResult
from deepopsctl.run.workspace import RunDir
from deepopsctl.validation.gpu import cards_by_node, with_gpus
from deepopsctl.validation.result import Validation, examine, exit_code_of
from tests.data.gpu_check_samples import gpu, measured, result, without_driver

JOB = {"suite": "gpu", "name": "gpu-job", "target": "gpu01", "status": "pass"}
WHEN = datetime(2026, 11, 21, tzinfo=UTC)


def cluster(count: int = 8, kind: str = "h100") -> Cluster:
    compute = frozenset({Role.COMPUTE})
    nodes = (Node("cpu01", compute), *(Node(name, compute, gpus=Gpus(kind, count)) for name in ("gpu01", "gpu02")))
    return Cluster("hpc", Access("ubuntu"), nodes, ())


def validated(folder: Path, run: str, *results: Any) -> tuple[Validation, tuple[str, ...]]:
    """A run in this cluster directory whose module handed these results back."""
    place = folder / "runs" / run
    place.mkdir(parents=True)
    data = {"checks": [JOB], "gpus": list(results)}
    summary = RunSummary({"ctl1": Totals(ok=2)}, (), (), (), (TaskResult("ctl1", "Test the GPUs", data),))
    outcome = RunOutcome(RunDir(place), "validate", summary, 3.1, 0)
    return with_gpus(examine(outcome, cluster(), ("gpu",), WHEN), cluster(), ClusterDir(folder))


def found(validation: Validation, name: str, target: str) -> Check:
    (check,) = [check for check in validation.facts.checks if (check.name, check.target) == (name, target)]
    return check


def test_results_are_judged_beside_the_checks_of_the_jobs(tmp_path: Path) -> None:
    validation, told = validated(tmp_path, "20261121-120000-validate", result("gpu01"), result("gpu02"))

    assert found(validation, "gpu-job", "gpu01").status is Status.PASS
    assert found(validation, "gpu-memory-copy", "gpu02/7").status is Status.PASS
    assert [entry["node"] for entry in validation.facts.gpus] == ["gpu01", "gpu02"]
    assert validation.exit_code is ExitCode.OK
    assert told == ()


def test_they_are_kept_in_the_runs_folder_as_gpucheck_prints_them(tmp_path: Path) -> None:
    validated(tmp_path, "20261121-120000-validate", result("gpu01"))

    kept = json.loads((tmp_path / "runs/20261121-120000-validate/gpu.json").read_text())
    assert (kept["schema"], kept["command"]) == (1, "gpucheck")
    assert [entry["node"] for entry in kept["results"]] == ["gpu01"]


def test_a_gpu_that_lost_speed_since_an_earlier_run_is_named(tmp_path: Path) -> None:
    validated(tmp_path, "20261121-120000-validate", result("gpu01"))
    slow = [gpu(index, measured=measured(copy=2690.0 if index == 5 else 3000.0)) for index in range(8)]

    validation, _ = validated(
        tmp_path, "20261122-120000-validate", result("gpu01", slow, when="2026-11-22T12:00:00+00:00")
    )

    check = found(validation, "gpu-memory-copy", "gpu01/5")
    assert check.status is Status.WARN
    assert "down 10% since 2026-11-21" in check.message


def test_a_node_without_a_driver_fails_where_cluster_yml_has_gpus(tmp_path: Path) -> None:
    validation, _ = validated(tmp_path, "20261121-120000-validate", without_driver("gpu01"))

    assert found(validation, "gpu-driver", "gpu01").status is Status.FAIL
    assert validation.exit_code is ExitCode.FAILED


def test_a_run_without_gpu_results_is_left_as_it_is(tmp_path: Path) -> None:
    validation, told = validated(tmp_path, "20261121-120000-validate")

    assert [check.name for check in validation.facts.checks] == ["gpu-job"]
    assert told == ()
    assert not (tmp_path / "runs/20261121-120000-validate/gpu.json").exists()


def test_slices_that_are_declared_as_gpus_count_no_cards() -> None:
    assert cards_by_node(cluster()) == {"gpu01": 8, "gpu02": 8}
    assert cards_by_node(cluster(14, "1g.10gb")) == {}


def test_a_cluster_without_gpus_is_neither_a_failure_nor_silent() -> None:
    nothing = Check("gpu", "gpu-nodes", "hpc", Status.SKIP, message="nothing to test")
    summary = RunSummary({}, (), (), (), ())

    assert exit_code_of(ExitCode.OK, [nothing], summary) is ExitCode.OK
    assert exit_code_of(ExitCode.OK, [Check("gpu", "gpu-job", "gpu01", Status.SKIP)], summary) is ExitCode.FAILED
    assert exit_code_of(ExitCode.OK, [], summary) is ExitCode.FAILED
