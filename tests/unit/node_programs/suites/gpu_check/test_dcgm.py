"""DCGM's diagnosis: what is read of it, how it is judged. Its texts are made after published ones of DCGM 4 and 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.gpu_check import dcgm
from deepopsctl.node_programs.suites.gpu_check.dcgm import diagnosed, diagnosis, read
from deepopsctl.node_programs.suites.gpu_check.evaluation import evaluate
from tests.data.gpu_check_samples import result
from tests.support.files import write_program

# without persistence every GPU fails so: a setting, by DCGM's own words (severity 5)
SETTING = {"error_category": 8, "error_id": 29, "error_severity": 5, "warning": "Persistence mode is disabled."}
BROKEN = {"error_id": 12, "error_severity": 2, "warning": "Uncorrectable ECC memory error detected"}


def dcgm4(**warnings: list[dict[str, Any]]) -> str:
    """`dcgmi diag --run 1 --json` of DCGM 4 on a node with two GPUs; what a test warns of is GPU 1's."""
    gpus: list[dict[str, Any]] = [
        {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": "Pass"} for number in range(2)
    ]
    tests = [
        {"name": name, "results": [gpus[0], {**gpus[1], "status": "Fail", "warnings": output} if output else gpus[1]]}
        for name, output in {"software": [], "memory": [], **warnings}.items()
    ]
    skipped = {"name": "nvbandwidth", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Skip"}]}
    parts = [{"category": "Deployment", "tests": [*tests, skipped]}]
    return json.dumps({"DCGM Diagnostic": {"test_categories": parts}, "metadata": {"version": "4.6.0"}})


FAILED = {"name": "Page Retirement", "results": [{"gpu_ids": "1", "status": "Fail", "warnings": "rows"}]}
TESTS = [{"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "Pass"}]}, FAILED]
PARTS = [{"category": "Deployment", "tests": TESTS}]
DCGM3 = json.dumps({"DCGM GPU Diagnostic": {"test_categories": PARTS, "version": "3.3.9"}})


def check_of(text: str) -> dict[str, str]:
    (actual,) = diagnosed({"node": "gpu01", "dcgm": read(text)})
    return actual


BREAKS = "memory, GPU 1: Uncorrectable ECC memory error detected"
IS_SET = "software, GPU 1: Persistence mode is disabled."


@pytest.mark.parametrize(
    ("warnings", "status", "message"),
    [
        ({}, "pass", ""),
        ({"memory": [BROKEN]}, "fail", f"gpu01: {BREAKS}"),
        # a setting of the node
        ({"software": [SETTING]}, "warn", f"gpu01: {IS_SET}"),
        ({"software": [SETTING], "memory": [BROKEN]}, "fail", f"gpu01: {IS_SET}; {BREAKS}"),
        ({"software": [SETTING] * 8}, "warn", f"gpu01: {IS_SET}; {IS_SET}; {IS_SET}; and 5 more"),
    ],
)
def test_findings_are_named_with_their_gpu_and_the_worst_counts(
    warnings: dict[str, list[dict[str, Any]]], status: str, message: str
) -> None:
    check = check_of(dcgm4(**warnings))

    assert (check["name"], check["target"], check["status"], check["message"]) == ("gpu-dcgm", "gpu01", status, message)
    # the number of tests that passed
    assert check["measured"] == str(2 - len(warnings))


def test_what_has_no_severity_is_a_fault_and_the_older_form_is_read() -> None:
    check = check_of(DCGM3)

    assert (check["status"], check["message"]) == ("fail", "gpu01: Page Retirement, GPU 1: rows")
    assert [read(text)["version"] for text in (dcgm4(), DCGM3)] == ["4.6.0", "3.3.9"]


@pytest.mark.parametrize(
    "output",
    ["Error: unable to establish a connection\n", '{"DCGM Diagnostic": {"runtime_error": "busy"}}', "", "[]"],
)
def test_a_host_engine_that_does_not_answer_is_skipped_with_what_was_said(output: str) -> None:
    check = check_of(output)

    assert check["status"] == "skip"
    assert check["message"].startswith("dcgmi diag: ")


def test_nothing_is_listed_where_dcgm_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert diagnosis() == {}
    assert not [check for check in evaluate([result()]) if check["name"] == "gpu-dcgm"]


def test_its_command_is_asked_for_the_level_that_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "engine"
    # its exit code is not 0 where a test failed
    report = dcgm4(memory=[BROKEN])
    script = f"[ \"$*\" = 'diag --run 1 --json' ] && echo '{report}' || echo \"$*\"; exit 226"
    write_program(tmp_path / "dcgmi", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(dcgm, "SOCKET", str(socket))

    actual = diagnosis()

    assert [finding["status"] for finding in actual["findings"]] == ["fail"]
    assert "gpu-dcgm" in {check["name"] for check in evaluate([result(dcgm=actual)])}
    # the host engine's socket is shown to users who may open it
    socket.touch()
    assert diagnosis() == {"problem": f"dcgmi diag: diag --host unix://{socket} --run 1 --json"}
