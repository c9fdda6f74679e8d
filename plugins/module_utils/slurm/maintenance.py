"""Maintenance of cluster.yml as reservations of Slurm: what differs, as scontrol's commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Tuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import hostlist, slurm_output

# start and end
Times = Tuple[datetime, datetime]

FLAGS = ("MAINT", "IGNORE_JOBS")
DAY = timedelta(days=1)
_WORKING_DAYS = 5


def occurrence(entry: Mapping[str, Any], now: datetime) -> Times | None:
    """(start, end) of the time that is on or comes next; None once the only one is over."""
    start, length = _first(entry)
    repeat = entry.get("repeat", "")
    while repeat and (start + length <= now or not _is_day_of(repeat, start)):
        behind = (now - start - length) // DAY if start + length <= now else 0
        step = max(behind // 7 * 7, 7) if repeat == "weekly" else max(behind, 1)
        start += step * DAY
    return None if start + length <= now else (start, start + length)


def _first(entry: Mapping[str, Any]) -> tuple[datetime, timedelta]:
    return datetime.fromisoformat(entry["start"]), timedelta(minutes=entry["minutes"])


def _is_day_of(repeat: str, day: datetime) -> bool:
    working = day.weekday() < _WORKING_DAYS
    return working if repeat == "weekday" else not working if repeat == "weekend" else True


def commands(
    declared: Sequence[Mapping[str, Any]],
    present: Mapping[str, Mapping[str, str]],
    owned: Sequence[str],
    now: datetime,
) -> list[tuple[list[str], str, str, str]]:
    """[(argv of scontrol, name, action, detail)] that make reservations as declared; `present` are Slurm's records."""
    wanted = {entry["name"]: entry for entry in declared}
    todo = [(_delete(name), name, "remove", "") for name in owned if name not in wanted and name in present]
    for name, entry in wanted.items():
        times, record = occurrence(entry, now), present.get(name)
        if times is None:
            if record is not None and _is_cut_short(record, entry):
                todo.append((_delete(name), name, "remove", ""))
            continue
        if record is not None and _is_another(record, entry, times, now):
            todo.append((_delete(name), name, "remove", ""))
            record = None
        if entry.get("repeat") and times[0] <= now and (record or {}).get("State") != "ACTIVE":
            # a start in the middle would be the start of all that follow
            times = occurrence(entry, times[1]) or times
        if record is None:
            todo.append((_create(entry, times, now), name, "add", _detail(entry, times)))
            continue
        differing = _differences(entry, times, record, now)
        if differing:
            todo.append((["update", "reservationname=" + name, *differing], name, "modify", " ".join(differing)))
    return todo


def _delete(name: str) -> list[str]:
    return ["delete", "reservationname=" + name]


def _create(entry: Mapping[str, Any], times: Times, now: datetime) -> list[str]:
    words = ["starttime=" + _start(times, now), "endtime=" + times[1].isoformat()]
    flags = [*FLAGS, *filter(None, [entry.get("repeat", "").upper()])]
    named = [
        "reservationname=" + entry["name"],
        "users=root",
        "nodes=" + hostlist.written_out(entry["nodes"]),
        "flags=" + ",".join(flags),
    ]
    return ["create", "reservation", *named, *words]


def _start(times: Times, now: datetime) -> str:
    """Slurm takes no start in the past."""
    return times[0].isoformat() if times[0] > now else "now"


def _detail(entry: Mapping[str, Any], times: Times) -> str:
    return f"{times[0].isoformat()} to {times[1].isoformat()}, {entry['nodes']}"


def _is_cut_short(record: Mapping[str, str], entry: Mapping[str, Any]) -> bool:
    """Whether it is the one that is over by now, and not a later one by the same name."""
    start, length = _first(entry)
    return datetime.fromisoformat(record["StartTime"]) < start + length


def _is_another(record: Mapping[str, str], entry: Mapping[str, Any], times: Times, now: datetime) -> bool:
    """Whether it can't be changed: its repetition stays, and so does the start of one that is on."""
    flags = record.get("Flags", "").upper().split(",")
    repeats = next((flag for flag in ("DAILY", "WEEKLY", "WEEKDAY", "WEEKEND") if flag in flags), "")
    return repeats != entry.get("repeat", "").upper() or (record.get("State") == "ACTIVE" and times[0] > now)


def _differences(entry: Mapping[str, Any], times: Times, record: Mapping[str, str], now: datetime) -> list[str]:
    words = []
    if set(hostlist.expand(slurm_output.present(record.get("Nodes")))) != set(hostlist.expand(entry["nodes"])):
        words.append("nodes=" + hostlist.written_out(entry["nodes"]))
    start, end = (datetime.fromisoformat(record[key]) for key in ("StartTime", "EndTime"))
    # Slurm changes no start of one that is on
    if start != times[0] and record.get("State") != "ACTIVE":
        words.append("starttime=" + _start(times, now))
    if end != times[1]:
        words.append("endtime=" + times[1].isoformat())
    missing = [flag for flag in FLAGS if flag not in record.get("Flags", "").split(",")]
    return words + (["flags+=" + ",".join(missing)] if missing else [])
