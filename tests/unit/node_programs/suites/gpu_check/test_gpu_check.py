"""gpucheck as a program: what it measures where, its files, its tables, its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.gpu_check import cli
from deepopsctl.node_programs.suites.gpu_check.bounds import markdown
from deepopsctl.node_programs.suites.gpu_check.cli import main
from deepopsctl.node_programs.suites.gpu_check.document import UnreadableError, document, read_results
from deepopsctl.node_programs.suites.gpu_check.evaluation import evaluate
from deepopsctl.node_programs.suites.gpu_check.links import cpu_list
from deepopsctl.node_programs.suites.gpu_check.measuring import Order, folded, obstacle, run_job, skipped
from deepopsctl.node_programs.suites.gpu_check.table import lines
from tests.data.gpu_check_samples import TESTS, gpu, measured, result, without_driver
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "gpucheck.md"


class TestWhatIsMeasured:
    @pytest.mark.parametrize(
        ("changes", "order", "visible", "reason"),
        [
            ({}, Order(), None, ""),
            ({}, Order(), "0,1", ""),
            ({}, Order(), "GPU-00000000", ""),
            ({}, Order(), "", "not in CUDA_VISIBLE_DEVICES="),
            ({}, Order(), "1,2", "not in CUDA_VISIBLE_DEVICES=1,2"),
            ({}, Order(measure=False), None, "skipped by --inventory"),
            ({"error": "lost"}, Order(), None, "the driver can't open it: lost"),
            ({"uuid": None}, Order(), None, "the driver doesn't report its UUID"),
            ({"mig": {"now": True, "after_reboot": True}}, Order(), None, "cut into MIG slices: the bounds are for whole GPUs"),  # noqa: E501 (a row of a table)
            ({"processes": 2}, Order(), None, "2 processes compute on it: measuring would disturb them (--busy-too)"),
            ({"processes": 2}, Order(busy_too=True), None, ""),
        ],
    )  # fmt: skip
    def test_jobs_of_others_are_left_alone(
        self, changes: dict[str, Any], order: Order, visible: str | None, reason: str
    ) -> None:
        assert obstacle(gpu(0, **changes), order, visible) == reason

    def test_the_highest_under_load_counts_and_every_reason_for_lower_clocks(self) -> None:
        first = {"sm": 1000, "power": 300000, "temperature": 50, "generation": 1, "width": 16, "slowdowns": ["idle"]}
        second = {"sm": 1700, "power": 650000, "temperature": 61, "generation": 5, "slowdowns": ["power cap"]}

        assert folded([first, {}, second]) == {
            "sm": 1700, "power": 650.0, "temperature": 61, "generation": 5, "width": 16, "slowdowns": ["power cap"],
            "samples": 3,
        }  # fmt: skip
        assert folded([])["power"] is None

    def test_cpus_next_to_a_gpu_are_read_as_linux_writes_them(self) -> None:
        assert cpu_list("0-2,8,10-11") == {0, 1, 2, 8, 10, 11}


class TestWorker:
    @pytest.mark.parametrize(
        ("program", "seconds", "message"),
        [
            ("raise KeyError('kind')", 60, "died (1): KeyError: 'kind'"),
            ("import time; time.sleep(600)", 0.5, "the GPU hangs"),
        ],
    )
    def test_a_worker_that_dies_or_hangs_is_a_failure(self, program: str, seconds: float, message: str) -> None:
        actual, _ = run_job({"tests": ["fp32", "bf16"]}, ["GPU-0"], seconds, None, program)

        assert [actual[name]["status"] for name in ("fp32", "bf16")] == ["error", "error"]
        assert message in actual["fp32"]["message"]

    def test_a_worker_sees_its_gpus_and_nothing_else(self) -> None:
        program = "import json, os; print(json.dumps({'fp32': os.environ['CUDA_VISIBLE_DEVICES']}))"

        assert run_job({"tests": ["fp32"]}, ["GPU-a", "GPU-b"], 60, None, program)[0] == {"fp32": "GPU-a,GPU-b"}


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("{", "no JSON"),
            ("[]", "no result of gpucheck"),
            ('{"command": "validate", "results": []}', "no result of gpucheck"),
            ('{"command": "gpucheck", "results": [3]}', "not an object"),
            ('{"command": "gpucheck", "results": [{"schema": 9}]}', "schema 9"),
            ('{"command": "gpucheck", "results": [{"schema": 1, "node": "a"}]}', "when is missing"),
        ],
    )
    def test_anything_else_is_refused_with_the_reason(self, tmp_path: Path, text: str, says: str) -> None:
        path = tmp_path / "x.json"
        path.write_text(text, encoding="utf-8")

        with pytest.raises(UnreadableError, match=says):
            read_results(path)


def written(directory: Path, *results: Any) -> list[str]:
    """Files as --json writes them, one for each result."""
    paths = [directory / f"{number}.json" for number in range(len(results))]
    for path, values in zip(paths, results, strict=True):
        path.write_text(json.dumps(document([values], evaluate([values]))), encoding="utf-8")
    return [str(path) for path in paths]


SLOW = gpu(1, measured=measured(copy=900.0))


class TestCommandLine:
    @pytest.mark.parametrize(
        ("results", "options", "code", "output"),
        [
            ([result("gpu01"), result("gpu02")], [], 0, "\npass: "),
            (
                [result("gpu02", [gpu(0), SLOW])],
                [],
                1,
                "gpu-memory-copy  gpu02/1  gpu02 GPU 1 (NVIDIA H100 80GB HBM3, ",
            ),
            # nothing to measure is not ok
            ([without_driver()], ["--json"], 5, '"ok": false'),
            ([without_driver()], ["--expect", "8"], 1, ""),
        ],
    )
    def test_the_exit_code_says_how_it_went(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], results: list[Any], options: list[str], code: int,
        output: str,
    ) -> None:  # fmt: skip
        assert main(["--evaluate", *written(tmp_path, *results), *options]) == code
        assert output in capsys.readouterr().out

    def test_a_node_whose_gpus_are_all_busy_was_not_measured(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        busy = gpu(0, measured=skipped(TESTS, "2 processes compute on it"), load={})
        monkeypatch.setattr(cli, "measure_node", lambda *_: result("gpu01", [busy]))

        assert (main([]), main(["--inventory"])) == (5, 0)
        assert main(["--json"]) == 5
        text = capsys.readouterr().out
        assert text.count("; no GPU was measured") == 2
        assert '"ok": false' in text

    def test_a_file_that_is_no_result_exits_3(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "x.json").write_text("{", encoding="utf-8")

        assert main(["--evaluate", str(tmp_path / "x.json")]) == 3
        assert capsys.readouterr().err.startswith("error: ")

    def test_an_earlier_result_is_compared_with(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        before = result("gpu01", [gpu(0)], when="2026-11-03T08:00:00+00:00")
        now = result("gpu01", [gpu(0, measured=measured(copy=2690.0))])
        files = written(tmp_path, now, before)

        assert main(["--evaluate", files[0], "--earlier", files[1]]) == 0
        assert "down 10% since 2026-11-03" in capsys.readouterr().out

    def test_people_see_every_skip_once_with_its_reason(self) -> None:
        results = [result("gpu01"), result("gpu02")]

        actual = [line for line in lines(results, evaluate(results)) if "no cuBLAS: use" in line]

        assert actual == ["  gpu-bf16-gemm  16 targets  no cuBLAS: use --cublas PATH"]


class TestPackedFile:
    """The whole way on a node: one file, a bare Python, nothing of this checkout or its environment in reach (-I)."""

    @pytest.fixture(params=["this", "oldest"])
    def python(self, request: pytest.FixtureRequest) -> str:
        return sys.executable if request.param == "this" else _oldest_python()

    @pytest.fixture
    def pyz(self, tmp_path: Path) -> Path:
        path = tmp_path / "gpucheck.pyz"
        assert main(["--pack", str(path)]) == 0
        return path

    def test_it_says_what_it_finds(self, python: str, pyz: Path) -> None:
        argv = [python, "-I", str(pyz), "--inventory", "--json"]

        ran = subprocess.run(argv, capture_output=True, text=True, cwd="/", env={"PATH": os.defpath})

        assert ran.returncode in (0, 1, 5), ran.stderr
        actual = json.loads(ran.stdout)
        assert [len(actual["results"]), actual["command"]] == [1, "gpucheck"]
        # on a machine without GPUs: said so, and not passed
        assert actual["results"][0]["gpus"] or {check["status"] for check in actual["checks"]} == {"skip"}

    def test_its_worker_and_its_kernels_are_found_inside_it(self, python: str, pyz: Path) -> None:
        job = {"kind": "one", "uuid": "GPU-of-nobody", "pci": "", "tests": ["fp32"], "cublas": ""}
        program = (
            f"import sys; sys.path.insert(0, {str(pyz)!r})\n"
            "import json\n"
            "from deepopsctl.node_programs.suites.gpu_check.measuring import run_job\n"
            "from deepopsctl.node_programs.suites.gpu_check.device_tests import kernels\n"
            f"print(json.dumps([len(kernels('mma')), run_job({job!r}, ['GPU-of-nobody'], 60, None)[0]]))"
        )

        ran = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, cwd="/")

        assert ran.returncode == 0, ran.stderr
        size, actual = json.loads(ran.stdout)
        assert size > 1000
        assert "cuda" in actual["fp32"]["message"].lower()


def _oldest_python() -> str:
    """Python 3.8, from the PATH or where pyenv keeps it."""
    kept = sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"))
    for program in (shutil.which("python3.8"), *map(str, kept)):
        # pyenv's shim is there for versions that are not
        if program and subprocess.run([program, "--version"], capture_output=True).returncode == 0:
            return program
    pytest.skip("no Python 3.8 on this machine")


class TestDocumentation:
    def test_the_table_of_bounds_is_the_one_in_the_code(self) -> None:
        assert "\n".join(markdown()) in PAGE.read_text(encoding="utf-8")

    def test_every_check_is_explained(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        checks = evaluate([result("gpu01"), result("gpu02"), without_driver()], (), {"gpu01": 8})

        assert [name for name in {check["name"] for check in checks} if f"`{name}`" not in page] == []
