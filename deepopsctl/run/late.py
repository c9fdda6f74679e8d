"""Nodes that took the connection and were late: this machine may be why, so they are asked once more."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from deepopsctl.run.outcome import RunOutcome, RunSummary

# Ansible's message for a task that ran into its `timeout`
TIMED_OUT = "Timed out after"
# A node that took the connection and then ran out of time: a busy control machine can be the cause. One that is off
# never gets that far.
_LATE = re.compile(rf"{TIMED_OUT}|banner exchange|Timeout, server .*not responding", re.IGNORECASE)
# How much longer such a node has, when it is asked again with fewer others; on a busy control machine up to four
# times as much.
MORE_TIME = 3
BUSIEST = 4


def late_nodes(summary: RunSummary) -> tuple[str, ...]:
    """Nodes that took the connection and did not answer in time."""
    return tuple(dict.fromkeys(each.host for each in summary.failures if each.host and _LATE.search(each.message)))


def busy_share() -> float:
    """Processes that want to run here for each CPU, a mean of the last minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def more_time(busy: float) -> int:
    """How many times as long a late node has when it is asked again."""
    return MORE_TIME * min(max(round(busy), 1), BUSIEST)


def merged(first: RunOutcome, again: RunOutcome) -> RunOutcome:
    """A query of all nodes, with the answers of those that were asked again."""
    one, other = first.summary, again.summary
    failures = [failure for failure in one.failures if failure.host not in other.hosts]
    return replace(
        again,
        run_dir=first.run_dir,
        elapsed_s=first.elapsed_s + again.elapsed_s,
        summary=replace(
            other,
            hosts={**one.hosts, **other.hosts},
            failures=(*failures, *other.failures),
            results=(*one.results, *other.results),
        ),
    )
