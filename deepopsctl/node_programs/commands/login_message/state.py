"""The cluster's state in a few lines, from what `sinfo` and `scontrol` print.

All of it goes to terminals, so it has printable characters only, whatever a user has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Callable, NamedTuple

from ..._shared import command, slurm_client, slurm_output

Run = Callable[[Sequence[str]], command.Result]

PARTITIONS = slurm_client.sinfo("--format=%P|%F|%l")
HEADER = ("partition", "nodes", "idle", "in use", "not available", "longest job")
# partitions to show, and how early maintenance is announced
MOST = 12
AHEAD = timedelta(days=14)
LIMIT_S = 20
_WIDEST = 40


class Maintenance(NamedTuple):
    """A time in which nodes do not start users' jobs."""

    start: datetime
    end: datetime
    nodes: str


def ask_slurm(argv: Sequence[str]) -> command.Result:
    """Run one of Slurm's commands."""
    return slurm_client.ask(argv, LIMIT_S)


def message(cluster: str, now: datetime, ask: Run = ask_slurm) -> str:
    """The lines for everybody."""
    answer = ask(PARTITIONS)
    if not answer.ok:
        return _text([slurm_output.clean(cluster) + ": Slurm does not answer"])
    rows = list(_partitions(answer.output))
    lines = [f"{slurm_output.clean(cluster)}, {now:%a %d %b %H:%M}", *_table([HEADER, *rows[:MOST]])]
    if len(rows) > MOST:
        lines.append(f"and {len(rows) - MOST} more partitions: `sinfo -s`")
    lines += [_announcement(each, now) for each in maintenances(ask(slurm_client.RESERVATIONS).output, now)]
    return _text(lines)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _partitions(output: str) -> Iterator[Sequence[str]]:
    for line in output.splitlines():
        fields = line.split("|")
        counts = fields[1].split("/") if len(fields) == 3 else []
        if len(counts) == 4:
            in_use, idle, other, total = counts
            yield tuple(
                slurm_output.clean(each.strip(), _WIDEST) for each in (fields[0], total, idle, in_use, other, fields[2])
            )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in rows
    ]


def maintenances(output: str, now: datetime) -> list[Maintenance]:
    """Reservations for maintenance that are on or come soon, the next one first."""
    planned = []
    for line in output.splitlines():
        entry = slurm_output.record(line)
        if "MAINT" not in entry.get("Flags", "").split(","):
            continue
        try:
            start, end = (datetime.fromisoformat(entry[key]) for key in ("StartTime", "EndTime"))
        except (KeyError, ValueError):
            continue
        if end > now and start < now + AHEAD:
            planned.append(Maintenance(start, end, slurm_output.clean(entry.get("Nodes", ""), _WIDEST)))
    return sorted(planned)


def _announcement(each: Maintenance, now: datetime) -> str:
    end = each.end.strftime("%H:%M" if each.end.date() == each.start.date() else "%a %d %b %H:%M")
    if each.start <= now:
        return f"Maintenance of {each.nodes} until {end}: jobs wait"
    planned = f"Maintenance of {each.nodes} from {each.start:%a %d %b %H:%M} to {end}"
    return f"{planned}: jobs start if their time limit ends before"
