"""The burn-in's half on the control machine: how long, with which jobs, and its end where it is stopped."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace

from deepopsctl.run.command_line import RunRequest
from deepopsctl.run.events import Event
from deepopsctl.run.outcome import RunOutcome

SUITE = "burnin"
END = "operate/burnin-end"
RESULTS_FILE = "burnin.json"
# the jobs have to leave the nodes first
_ENDING_S = 180.0


@dataclass(frozen=True, slots=True)
class Burnin:
    """What was asked for; `token` is what its jobs and files are known by. Empty: as the cluster's settings have it."""

    seconds: int
    partition: str = ""
    qos: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(3))

    def variables(self) -> dict[str, object]:
        """For the role. What was not asked for stays as the site's settings have it."""
        asked = {"validate_burnin_partition": self.partition, "validate_burnin_qos": self.qos}
        return {
            "validate_burnin_seconds": self.seconds,
            "validate_burnin_token": self.token,
            **{name: value for name, value in asked.items() if value},
        }

    @property
    def cancel_command(self) -> str:
        """How a person ends it."""
        return f"scancel --name=deepopsctl-burnin-{self.token}-load"


def save_results(outcome: RunOutcome) -> None:
    """Leave what gpucheck measured on every node beside the checks."""
    listed = [entry for task in outcome.summary.results for entry in _list(task.data.get(SUITE))]
    if listed:
        outcome.run_dir.write(outcome.run_dir.path / RESULTS_FILE, {"schema": 1, "results": listed})


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def end(request: RunRequest, burnin: Burnin) -> bool:
    """Cancel the jobs of a burn-in whose run was stopped, and remove what they wrote; False where that did not work."""
    from deepopsctl.run.runner import run_readonly

    asked = replace(
        request,
        playbook=END,
        more=(),
        component=SUITE,
        extra_vars={"validate_burnin_token": burnin.token},
        timeout=_ENDING_S,
    )
    return run_readonly(asked, _unseen).ok


def _unseen(event: Event) -> None:
    del event
