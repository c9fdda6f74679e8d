"""The last run, the last deploy and the last validation, from the run directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deepopsctl.checks.check import Totals, parse_check, totals
from deepopsctl.run.history import PastRun, past_run
from deepopsctl.run.workspace import RunDir, Workspace
from deepopsctl.validation.result import CHECKS_FILE


@dataclass(frozen=True, slots=True)
class LastRuns:
    """None if there was none, or if it is no longer stored."""

    run: PastRun | None = None
    deploy: PastRun | None = None
    validation: PastRun | None = None
    checks: Totals | None = None

    def as_object(self) -> dict[str, object]:
        """Their part of `status --json`; an empty object for a missing run."""
        return {
            "last_run": self.run.as_object() if self.run else {},
            "last_deploy": self.deploy.as_object() if self.deploy else {},
            "last_validation": self._validation() if self.validation else {},
        }

    def _validation(self) -> dict[str, object]:
        entry = self.validation.as_object() if self.validation else {}
        if self.checks:
            entry["checks"] = {
                "passed": self.checks.passed,
                "warned": self.checks.warned,
                "failed": self.checks.failed,
                "skipped": self.checks.skipped,
            }
        return entry


def last_runs(workspace: Workspace) -> LastRuns:
    """Reads the newest directories first, and no more than needed."""
    run_dirs = workspace.newest_first()
    deploy = _newest(run_dirs, "deploy")
    validation = _newest(run_dirs, "validate")
    return LastRuns(
        run=past_run(run_dirs[0]) if run_dirs else None,
        deploy=past_run(deploy) if deploy else None,
        validation=past_run(validation) if validation else None,
        checks=_checks(validation) if validation else None,
    )


def _newest(run_dirs: tuple[RunDir, ...], command: str) -> RunDir | None:
    """The newest run of a command, without deploys in check mode."""
    for run_dir in run_dirs:
        request = run_dir.read(run_dir.request)
        if request.get("command") == command and not request.get("check"):
            return run_dir
    return None


def _checks(run_dir: RunDir) -> Totals | None:
    listed = run_dir.read(run_dir.path / CHECKS_FILE).get("checks")
    if not isinstance(listed, list):
        return None
    return totals(parse_check(entry) for entry in listed if isinstance(entry, Mapping))
