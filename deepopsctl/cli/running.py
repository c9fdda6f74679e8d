"""Run playbooks for a command: first line, progress, failures, verdict, exit code."""

from __future__ import annotations

from deepopsctl.cli.output import emit_json, say
from deepopsctl.cli.progress import show_progress
from deepopsctl.invocation import RunRequest


def run_and_report(request: RunRequest, hosts: tuple[str, ...] | None, cluster: str, *, as_json: bool) -> int:
    """Run, show, report; the exit code."""
    from deepopsctl.runner import run
    from deepopsctl.runreport import summary_object

    say(f"{request.command} {' '.join(request.playbooks)} on {len(hosts or ())} nodes of cluster {cluster}")
    with show_progress(len(hosts) if hosts is not None else None) as watch:
        outcome = run(request, watch)
    document = summary_object(request.command, outcome)
    outcome.folder.write(outcome.folder.summary, document)
    if as_json:
        emit_json(document)
    for failure in outcome.summary.failures:
        say(f"{failure.host}: {failure.component}: {failure.task}: {failure.message}")
    if outcome.errors and not outcome.ok:
        say("\n".join(outcome.errors))
    say(f"{'ok' if outcome.ok else 'failed'} after {outcome.elapsed_s} s: deepopsctl runs show {outcome.run_id}")
    return int(outcome.exit_code)
