"""The table of suites in docs/testing.md: each run writes its own row; for scripts/run-tests."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime

from testruns import ROOT, Run

PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- suites: written by `make test-all` -->\n", "<!-- end of suites -->\n"
HEADER = "| Suite | Nodes | Passed | Seconds | Date | Commit | Machine |\n|---|---|---|---|---|---|---|\n"
ROW = re.compile(r"\| (\S+) \|.*\n")


class Page:
    """The page, and what its rows have in common."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known
        self._written: set[str] = set()
        gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
        self._machine = f"{os.cpu_count()} cores, {gib:.0f} GiB"
        # what is not committed has no name: a plus says so
        self._commit = git("rev-parse", "--short=8", "HEAD") + "+" * bool(git("status", "--porcelain", "-uno"))

    def write(self, runs: Sequence[Run]) -> None:
        """Write a row for each run that has ended since; rows of suites that are not known any more go."""
        ended = [run for run in runs if run.ended and run.name not in self._written]
        if not ended:
            return
        self._written |= {run.name for run in ended}
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        table, _, after = rest.partition(END)
        rows = {row[1]: row[0] for row in ROW.finditer(table)} | {run.name: self._row(run) for run in ended}
        kept = "".join(rows[name] for name in self._known if name in rows)
        PAGE.write_text(f"{before}{BEGIN}{HEADER}{kept}{END}{after}", encoding="utf-8")

    def _row(self, run: Run) -> str:
        others = [f"{number} {word}" for word, number in run.counts.items() if word != "passed"]
        # what is not pytest has an exit status only
        passed = str(run.counts.get("passed", 0)) if run.counts else "no" if run.status() else "yes"
        if run.status() and not run.counts.get("failed"):
            others.append("failed")
        seconds = round(run.ended - run.started)
        cells = (run.name, run.platform, ", ".join([passed, *others]), seconds, datetime.now(UTC).date(), self._commit)
        return f"| {' | '.join(map(str, cells))} | {self._machine} |\n"


def git(*words: str) -> str:
    """What git answers."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
