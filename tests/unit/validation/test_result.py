"""From a finished run to checks and an exit code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deepopsctl.checks.check import Check, Status
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Access, Cluster, Node, Role
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import Failure, RunOutcome, RunSummary, TaskResult
from deepopsctl.validation.result import Validation, collect, examine, exit_code_of, playbook_of, save
from tests.support.paths import ROOT
from tests.support.runs import run_of

PASSED = {"suite": "smoke", "name": "services", "target": "gpu01", "status": "pass"}
FAILED = {**PASSED, "name": "node-state", "status": "fail", "message": "Slurm's reason: bad DIMM"}


def outcome(*checks: dict[str, str], failures: tuple[Failure, ...] = (), directory: Path = Path("x")) -> RunOutcome:
    hosts = {"ctl1": Totals(ok=2), "gpu01": Totals(ok=1)}
    hosts |= {failure.host: Totals(unreachable=1) for failure in failures if failure.unreachable}
    return run_of(TaskResult("gpu01", "Look", {"checks": list(checks)}), *failures, directory=directory, hosts=hosts)


def summary(*checks: dict[str, str], failures: tuple[Failure, ...] = ()) -> RunSummary:
    return outcome(*checks, failures=failures).summary


def validated(*checks: dict[str, str], directory: Path) -> Validation:
    cluster = Cluster("hpc", Access("ubuntu"), (Node("gpu01", frozenset({Role.COMPUTE})),), ())
    return examine(outcome(*checks, directory=directory), cluster, ("smoke",), datetime(2026, 11, 21, tzinfo=UTC))


def lost(host: str) -> Failure:
    return Failure(host, "validate", "Query every node's state", "ssh: connection\nrefused", "", unreachable=True)


def codes(found: RunSummary, ran: ExitCode = ExitCode.OK) -> ExitCode:
    return exit_code_of(ran, collect(found, "smoke"), found)


def test_the_checks_of_all_modules_come_together() -> None:
    found = collect(summary(PASSED, FAILED), "smoke")

    assert [(check.name, check.status) for check in found] == [("services", Status.PASS), ("node-state", Status.FAIL)]


def test_a_node_that_did_not_answer_is_a_failed_check_with_the_reason_in_one_line() -> None:
    found = collect(summary(PASSED, failures=(lost("gpu02"),)), "smoke")

    assert found[-1] == Check(
        "smoke", "reachable", "gpu02", Status.FAIL, "no", "yes", message="ssh: connection refused"
    )


def test_a_module_that_broke_is_a_failed_check_of_its_node() -> None:
    broken = Failure("ctl1", "validate", "Run the suite", "KeyError: 'x'", "")

    assert collect(summary(PASSED, failures=(broken,)), "smoke")[-1].name == "suite-ran"


def test_an_error_of_ansible_itself_belongs_to_no_node() -> None:
    assert len(collect(summary(PASSED, failures=(Failure("", "", "", "no such file", ""),)), "smoke")) == 1


def test_all_passed_is_0_and_a_failed_check_is_1() -> None:
    assert codes(summary(PASSED)) is ExitCode.OK
    assert codes(summary(PASSED, FAILED)) is ExitCode.FAILED


def test_warnings_and_skipped_checks_do_not_fail() -> None:
    assert codes(summary(PASSED, {**PASSED, "status": "warn"}, {**PASSED, "status": "skip"})) is ExitCode.OK


def test_nothing_proven_is_no_success() -> None:
    assert codes(summary({**PASSED, "status": "skip"})) is ExitCode.FAILED
    assert codes(summary()) is ExitCode.FAILED


def test_a_gpu_of_an_unreachable_node_is_no_other_failure() -> None:
    gpu = {**FAILED, "suite": "gpu", "name": "gpu-opens", "target": "gpu02/3"}
    found = summary(PASSED, gpu, failures=(lost("gpu02"),))

    assert codes(found, ExitCode.UNREACHABLE) is ExitCode.UNREACHABLE
    assert codes(summary(PASSED, {**gpu, "target": "gpu01/3"})) is ExitCode.FAILED


def test_a_failure_elsewhere_outweighs_an_unreachable_node() -> None:
    found = summary(PASSED, FAILED, failures=(lost("gpu02"),))

    assert codes(found, ExitCode.UNREACHABLE) is ExitCode.FAILED


@pytest.mark.parametrize("ran", [ExitCode.TIMEOUT, ExitCode.INTERRUPTED])
def test_a_run_that_was_cut_off_says_so_whatever_was_found(ran: ExitCode) -> None:
    assert codes(summary(PASSED), ran) is ran


def test_the_reports_are_kept_beside_the_runs_log_for_their_owner_only(tmp_path: Path) -> None:
    save(validated(PASSED, directory=tmp_path))

    document = json.loads((tmp_path / "checks.json").read_text())
    assert document["ok"] is True
    assert document["run"] == tmp_path.name
    assert [check["name"] for check in document["checks"]] == ["services"]
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o600


def test_a_run_whose_checks_failed_is_a_failed_run(tmp_path: Path) -> None:
    save(validated(PASSED, FAILED, directory=tmp_path))

    kept = json.loads((tmp_path / "summary.json").read_text())
    assert (kept["ok"], kept["verdict"]) == (False, "failed")


def test_every_suite_has_its_playbook() -> None:
    assert (ROOT / "playbooks" / f"{playbook_of('smoke')}.yml").is_file()
