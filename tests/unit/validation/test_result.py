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


def test_the_checks_of_all_modules_come_together() -> None:
    actual = collect(summary(PASSED, FAILED), "smoke")

    assert [(check.name, check.status) for check in actual] == [("services", Status.PASS), ("node-state", Status.FAIL)]


def test_a_node_that_did_not_answer_is_a_failed_check_with_the_reason_in_one_line() -> None:
    actual = collect(summary(PASSED, failures=(lost("gpu02"),)), "smoke")

    assert actual[-1] == Check(
        "smoke", "reachable", "gpu02", Status.FAIL, "no", "yes", message="ssh: connection refused"
    )


def test_a_module_that_broke_is_a_failed_check_of_its_node() -> None:
    broken = Failure("ctl1", "validate", "Run the suite", "KeyError: 'x'", "")

    assert collect(summary(PASSED, failures=(broken,)), "smoke")[-1].name == "suite-ran"


def test_checks_that_are_none_are_a_failed_check_of_the_node_that_returned_them() -> None:
    (check,) = collect(summary(PASSED, {**PASSED, "status": "splendid"}), "smoke")

    assert (check.name, check.target, check.status) == ("suite-ran", "gpu01", Status.FAIL)


def test_an_error_of_ansible_itself_belongs_to_no_node() -> None:
    assert len(collect(summary(PASSED, failures=(Failure("", "", "", "no such file", ""),)), "smoke")) == 1


SKIPPED = {**PASSED, "status": "skip"}
GPU = {**FAILED, "suite": "gpu", "name": "gpu-opens"}
LOST = (lost("gpu02"),)


@pytest.mark.parametrize(
    ("actual", "ran", "code"),
    [
        (summary(PASSED), ExitCode.OK, ExitCode.OK),
        (summary(PASSED, FAILED), ExitCode.OK, ExitCode.FAILED),
        (summary(PASSED, {**PASSED, "status": "warn"}, SKIPPED), ExitCode.OK, ExitCode.OK),
        (summary(SKIPPED), ExitCode.OK, ExitCode.FAILED),
        (summary(), ExitCode.OK, ExitCode.FAILED),
        (summary(PASSED, {**GPU, "target": "gpu02/3"}, failures=LOST), ExitCode.UNREACHABLE, ExitCode.UNREACHABLE),
        (summary(PASSED, {**GPU, "target": "gpu01/3"}), ExitCode.OK, ExitCode.FAILED),
        (summary(PASSED, FAILED, failures=LOST), ExitCode.UNREACHABLE, ExitCode.FAILED),
        (summary(PASSED), ExitCode.TIMEOUT, ExitCode.TIMEOUT),
        (summary(PASSED), ExitCode.INTERRUPTED, ExitCode.INTERRUPTED),
    ],
    ids=[
        "all passed",
        "one failed",
        "warnings and skipped checks",
        "all skipped",
        "no check",
        "a GPU of an unreachable node",
        "a GPU of another node",
        "a failure elsewhere outweighs an unreachable node",
        "cut off by its time limit",
        "interrupted",
    ],
)
def test_the_exit_code_is_that_of_what_was_found(actual: RunSummary, ran: ExitCode, code: ExitCode) -> None:
    assert exit_code_of(ran, collect(actual, "smoke"), actual) is code


def test_the_reports_are_kept_next_to_the_runs_log_for_their_owner_only(tmp_path: Path) -> None:
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
