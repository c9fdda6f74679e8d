"""A validation from a finished run: collect the checks, evaluate them, save the reports in the run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from deepopsctl.checks.check import Check, Status, failed_places, parse_check, totals
from deepopsctl.errors import ExitCode
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.json_objects import ChecksObject
from deepopsctl.report.model import Facts, document
from deepopsctl.run.outcome import RunOutcome, RunSummary, TaskResult, Verdict

COMMAND = "validate"
# the playbook that installs libraries on the GPU nodes or removes them; and its variable
LIBRARIES, LIBRARIES_STATE = "gpu-libraries", "deepops_gpu_libraries_state"
CHECKS_FILE, REPORT_FILE = "checks.json", "report.html"
_VERDICTS = {
    ExitCode.OK: Verdict.OK,
    ExitCode.FAILED: Verdict.FAILED,
    ExitCode.UNREACHABLE: Verdict.UNREACHABLE,
}


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a validation."""

    outcome: RunOutcome
    facts: Facts

    @property
    def exit_code(self) -> ExitCode:
        """0, 1 when a check failed, 4 when all that failed is that nodes could not be reached."""
        return exit_code_of(self.outcome.exit_code, self.facts.checks, self.outcome.summary)

    @property
    def ok(self) -> bool:
        """True when no check failed and every node was reached."""
        return self.exit_code is ExitCode.OK

    def document(self) -> ChecksObject:
        """The JSON object."""
        facts = self.facts
        return document(ok=self.ok, run=facts.run, checks=facts.checks, gpus=facts.gpus, verdict=facts.stopped)


def playbook_of(suite: str) -> str:
    """The playbook of a suite, as the runner names it."""
    return f"validate/{suite}"


def examine(outcome: RunOutcome, cluster: Cluster, suites: tuple[str, ...], started: datetime) -> Validation:
    """The validation of a finished run."""
    facts = Facts(
        cluster=cluster.name,
        suites=suites,
        run=outcome.run_id,
        when=started,
        elapsed_s=outcome.elapsed_s,
        nodes=tuple(node.name for node in cluster.nodes),
        checks=collect(outcome.summary, suites[0]),
        stopped=str(outcome.stopped or ""),
    )
    return Validation(outcome, facts)


def save(validation: Validation) -> None:
    """Save checks.json and report.html in the run directory, and the verdict in the run's summary."""
    from deepopsctl.report.html import render_html

    run_dir = validation.outcome.run_dir
    record_outcome(validation.outcome, validation.exit_code)
    run_dir.write(run_dir.path / CHECKS_FILE, validation.document())
    write_atomic(run_dir.path / REPORT_FILE, render_html(validation.facts), mode=0o600)


def record_outcome(outcome: RunOutcome, code: ExitCode) -> None:
    """Save the verdict of the checks for `runs list`: the run's own summary knows only tasks."""
    verdict = _VERDICTS.get(code, outcome.verdict)
    document = {**outcome.as_object(), "ok": code is ExitCode.OK, "verdict": str(verdict)}
    outcome.run_dir.write(outcome.run_dir.summary, document)


def collect(summary: RunSummary, suite: str) -> tuple[Check, ...]:
    """The checks of all modules, and one for every node that could not be examined."""
    checks = [check for result in summary.results for check in _checks(result, suite)]
    lost = set(summary.unreachable)
    for failure in summary.failures:
        if not failure.host:
            continue
        name = "reachable" if failure.host in lost else "suite-ran"
        message = " ".join(failure.message.split())
        checks.append(Check(suite, name, failure.host, Status.FAIL, "no", "yes", message=message))
    return tuple(checks)


def _checks(result: TaskResult, suite: str) -> list[Check]:
    """The checks that a node returned; one that says so where they are none."""
    try:
        return [*map(parse_check, result.entries("checks"))]
    except ValueError as error:
        return [Check(suite, "suite-ran", result.host, Status.FAIL, "no", "yes", message=str(error)[:500])]


def exit_code_of(ran: ExitCode, checks: Sequence[Check], summary: RunSummary) -> ExitCode:
    """The exit code: the run's own for anything but failures and unreachable nodes, else by the checks.

    A validation that tested nothing has failed, also where the cluster has nothing of that type.
    """
    if ran not in (ExitCode.OK, ExitCode.FAILED, ExitCode.UNREACHABLE):
        return ran
    if ran is ExitCode.FAILED or failed_places(checks) - set(summary.unreachable):
        return ExitCode.FAILED
    if summary.unreachable:
        return ExitCode.UNREACHABLE
    tested = totals(checks)
    return ExitCode.OK if tested.passed or tested.warned else ExitCode.FAILED
