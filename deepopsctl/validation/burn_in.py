"""The burn-in on the control machine: options, results, and cancelling its jobs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace

from deepopsctl.checks.suites import BURNIN
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest

END = "operate/nodes/burnin-end"
RESULTS_FILE = "burnin.json"
# seconds; the jobs have to end first
_ENDING_S = 180.0


@dataclass(frozen=True, slots=True)
class Burnin:
    """Options of a burn-in; `token` marks its jobs and files. Empty options: the cluster's settings."""

    seconds: int
    partition: str = ""
    qos: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(3))

    def variables(self) -> dict[str, object]:
        """Variables of the role; options that are not set keep the site's settings."""
        asked = {"validate_burnin_partition": self.partition, "validate_burnin_qos": self.qos}
        return {
            "validate_burnin_seconds": self.seconds,
            "validate_burnin_token": self.token,
            **{name: value for name, value in asked.items() if value},
        }

    @property
    def cancel_command(self) -> str:
        """The command that cancels it manually."""
        return f"scancel --name=deepopsctl-burnin-{self.token}-load"


def save_results(outcome: RunOutcome) -> None:
    """Save gpucheck's measurements of every node next to the checks."""
    listed = [entry for task in outcome.summary.results for entry in task.entries(BURNIN)]
    if listed:
        outcome.run_dir.write(outcome.run_dir.path / RESULTS_FILE, {"schema": 1, "results": listed})


def end(request: RunRequest, burnin: Burnin) -> bool:
    """Cancel the jobs of a stopped burn-in and remove their files; False if that failed."""
    from deepopsctl.run.runner import run_readonly

    asked = replace(
        request,
        playbook=END,
        more=(),
        component=BURNIN,
        extra_vars={"validate_burnin_token": burnin.token},
        timeout=_ENDING_S,
    )
    return run_readonly(asked).ok
