"""Result of a run: its exit code, and the documented JSON object (DESIGN, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from deepopsctl.errors import ExitCode
from deepopsctl.run.summary import RunSummary
from deepopsctl.run.workspace import RunDir

SCHEMA = 1


class Verdict(StrEnum):
    """The end of a run in one word."""

    OK = "ok"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


_EXIT_CODES = {
    Verdict.OK: ExitCode.OK,
    Verdict.FAILED: ExitCode.FAILED,
    Verdict.UNREACHABLE: ExitCode.UNREACHABLE,
    Verdict.TIMEOUT: ExitCode.TIMEOUT,
    Verdict.INTERRUPTED: ExitCode.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run. `stopped` says why it ended early; then `at` names the task, `pending` its unfinished hosts."""

    run_dir: RunDir
    command: str
    summary: RunSummary
    elapsed_s: float
    return_code: int
    stopped: Verdict | None = None
    at: str = ""
    pending: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        """The run's name, for `deepopsctl runs show`."""
        return self.run_dir.id

    @property
    def verdict(self) -> Verdict:
        """From the events: runner returns 254 for both timeout and cancel, Ansible 4 also for its own errors."""
        if self.stopped:
            return self.stopped
        if any(not failure.unreachable for failure in self.summary.failures):
            return Verdict.FAILED
        if self.summary.unreachable:
            return Verdict.UNREACHABLE
        return Verdict.OK if self.return_code == 0 else Verdict.FAILED

    @property
    def ok(self) -> bool:
        """Everything asked was done on every host."""
        return self.verdict is Verdict.OK

    @property
    def exit_code(self) -> ExitCode:
        """DESIGN, section 5."""
        return _EXIT_CODES[self.verdict]

    @property
    def errors(self) -> tuple[str, ...]:
        """Ansible's error messages outside any task."""
        return tuple(failure.message for failure in self.summary.failures if not failure.host)

    def as_object(self) -> dict[str, object]:
        """The `--json` object, also stored as summary.json in the run directory."""
        summary = self.summary
        return {
            "schema": SCHEMA,
            "command": self.command,
            "ok": self.ok,
            "verdict": str(self.verdict),
            "run": self.run_id,
            "elapsed_s": self.elapsed_s,
            **summary.as_object(),
        }
