"""The report of an earlier validation, read from its run directory."""

from __future__ import annotations

from datetime import datetime

from deepopsctl.checks.check import parse_check
from deepopsctl.report.model import Facts
from deepopsctl.run.history import PastRun
from deepopsctl.text.answers import mapping, mappings
from deepopsctl.validation.gpu import RUN_FILE
from deepopsctl.validation.result import CHECKS_FILE


def past_facts(run: PastRun) -> Facts | None:
    """The facts of a validation; None for other runs, and if its checks can't be read."""
    listed = run.run_dir.read(run.run_dir.path / CHECKS_FILE).get("checks")
    if not isinstance(listed, list):
        return None
    try:
        checks = tuple(parse_check(mapping(entry)) for entry in listed)
    except ValueError:
        return None
    return Facts(
        cluster="",
        suites=tuple(dict.fromkeys(check.suite for check in checks)),
        run=run.run_dir.id,
        when=_started(run),
        elapsed_s=run.elapsed_s or 0.0,
        nodes=tuple(run.hosts),
        checks=checks,
        gpus=tuple(mappings(run.run_dir.read(run.run_dir.path / RUN_FILE).get("results"))),
    )


def _started(run: PastRun) -> datetime:
    try:
        return datetime.fromisoformat(str(run.request.get("started")))
    except ValueError:
        return datetime.fromtimestamp(run.run_dir.path.stat().st_mtime).astimezone()
