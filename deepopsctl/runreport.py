"""The documented JSON object of a run (DESIGN, section 5)."""

from __future__ import annotations

from deepopsctl.runner import RunOutcome

SCHEMA = 1


def summary_object(command: str, outcome: RunOutcome) -> dict[str, object]:
    """What `--json` prints, and what a run's folder keeps."""
    summary = outcome.summary
    return {
        "schema": SCHEMA,
        "command": command,
        "ok": outcome.ok,
        "run": outcome.run_id,
        "elapsed_s": outcome.elapsed_s,
        "hosts": {
            host: {key: getattr(totals, key) for key in ("ok", "changed", "failed", "unreachable", "skipped")}
            for host, totals in summary.hosts.items()
        },
        "failures": [
            {key: getattr(failure, key) for key in ("host", "component", "task", "message", "hint")}
            for failure in summary.failures
        ],
        "slowest": [{"task": task, "elapsed_s": elapsed} for task, elapsed in summary.slowest],
        "warnings": list(summary.warnings),
    }
