"""A user's jobs and the cluster, as Slurm shows them to the user who asks: for the pages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..._shared import command, node_states, slurm_client, slurm_output
from ..._shared.command import Result
from ..._shared.slurm_output import clean, whole
from ...commands.job_report import asking, history
from ...commands.job_report.asking import Run, UnansweredError
from ...commands.job_report.cli import document
from ...commands.job_report.measures import measure
from .offer import Offer

Ask = Callable[..., Result]
LIMIT_S = 60
# the newest of them: a page of 100,000 helps nobody
MOST = 200
MOST_WAITS, WAITS_S = 12, 8.0
WHY, USAGE = "/usr/local/bin/why", "/usr/local/bin/usage"
_LIVE = "%i|%u|%T|%P|%a|%V|%S|%l|%M|%C|%m|%b|%D|%N|%r"
_LIVE_KEYS = (
    "id", "user", "state", "partition", "account", "submitted", "start", "limit", "elapsed", "cpus", "memory", "gres",
    "nodes", "where", "reason",
)  # fmt: skip
_NAME = "%i|%j"


def listed(ask: Ask, days: int, account: str = "") -> dict[str, Any]:
    """One's own jobs, or all of an account: those that wait and run, and the newest that have ended in these days."""
    whose = "--account=" + account if account else "--me"
    live = ask(slurm_client.squeue(_LIVE, whose, "--array"), LIMIT_S, env=_environment())
    if not live.ok:
        return {"trouble": clean(live.failure, 300), "live": [], "ended": []}
    names = _names(ask(slurm_client.squeue(_NAME, whose, "--array"), LIMIT_S, env=_environment()).output)
    rows = [dict(zip(_LIVE_KEYS, row)) for row in slurm_output.rows(live.output, _LIVE)]
    for row in rows:
        row["name"] = names.get(row["id"], "")
    trouble, ended, more = "", [], False
    try:
        jobs, more = history.newest(_running(ask), max(1, min(days, 90)), MOST, [account] if account else ())
        ended = [document(measure(job)) for job in jobs]
    except UnansweredError as error:
        trouble = clean(str(error), 300)
    return {"trouble": trouble, "more": more or len(rows) > MOST, "live": rows[:MOST], "ended": ended}


def usage(ask: Ask, days: int, *, users: bool) -> dict[str, Any]:
    """What the command `usage` says to the user who asks."""
    result = ask([USAGE, "--json", f"--days={max(1, min(days, 366))}", *(["--users"] if users else [])], LIMIT_S)
    if not result.ok:
        return {"trouble": clean(result.failure.replace("error: ", ""), 300)}
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def _environment() -> dict[str, str]:
    return command.slurm_environment(SLURM_TIME_FORMAT="%s", TZ="UTC")


def _running(ask: Ask) -> Run:
    def query(argv: Sequence[str]) -> str:
        result = ask(argv, LIMIT_S, env=_environment())
        if not result.ok:
            raise UnansweredError(result.failure)
        return str(result.output)

    return query


def _names(text: str) -> dict[str, str]:
    """Names are texts of users': a line is a number, a bar, and all else."""
    pairs = (line.partition("|") for line in text.splitlines())
    return {number: clean(name, 80) for number, bar, name in pairs if bar}


def explained(job: str, user: str, ask: Ask) -> dict[str, Any]:
    """What `why` says of it and what it used, as far as Slurm shows the job to the user who asks."""
    result = ask([WHY, "--json", job], LIMIT_S)
    if result.ok:
        answer: dict[str, Any] = json.loads(result.output)
        return {"why": answer, "use": _use(job, user, _running(ask))}
    return {"trouble": clean(result.failure.replace("error: ", ""), 300)}


def _use(job: str, user: str, run: Run) -> dict[str, Any] | None:
    """What one job used; `own`: it is the user's, or of an account of the user's. None where Slurm shows none."""
    try:
        matching = [each for each in asking.jobs(job, run) if job in (each.id, each.number) and each.began]
        if len(matching) != 1:
            return None
        own = matching[0].user == user or matching[0].account in history.accounts_of(user, run)
    except UnansweredError:
        # `why` has answered; the rest of the page is as good without
        return None
    return {**document(measure(matching[0])), "own": own}


def cluster(ask: Ask) -> dict[str, Any]:
    """Partitions with what of them is free, GPUs by type, and reservations that begin within a week."""
    shown = ask(slurm_client.show("--details", "node"), LIMIT_S)
    if not shown.ok:
        return {"trouble": clean(shown.failure, 300), "partitions": [], "gpus": [], "maintenance": []}
    nodes = slurm_output.records(shown.output, "NodeName")
    partitions: dict[str, dict[str, int]] = {}
    gpus: dict[str, dict[str, int]] = {}
    for entry in nodes.values():
        usable = _is_usable(entry.get("State", ""))
        for name in filter(None, slurm_output.present(entry.get("Partitions", "")).split(",")):
            _add(partitions.setdefault(name, _nothing()), entry, usable=usable)
        _count_gpus(gpus, entry, usable=usable)
    waiting = _waiting(ask)
    open_ones = slurm_output.records(ask(slurm_client.show("partition"), LIMIT_S).output, "PartitionName")
    return {
        "trouble": "",
        "partitions": [
            {"name": name, **partitions.get(name, _nothing()), "state": entry.get("State", ""),
             "limit": entry.get("MaxTime", ""), "waiting": waiting.get(name, 0)}
            for name, entry in open_ones.items()
        ],
        "gpus": [{"type": kind or "any", **counts} for kind, counts in sorted(gpus.items())],
        "maintenance": _maintenance(ask),
    }  # fmt: skip


def waits(offered: Offer, ask: Ask) -> list[dict[str, Any]]:
    """When one core, or one GPU of each type, would be there for this user for an hour, by `sbatch --test-only`.

    slurmctld plans as for a job of the queue: few are tried, and none after a slow one.
    """
    places = [(each, kind) for each in offered.partitions for kind in each.gpus or [None]]
    planned, began = [], time.monotonic()
    for partition, kind in places[:MOST_WAITS]:
        if time.monotonic() - began > WAITS_S:
            break
        minutes = min(60, partition.minutes or 60)
        options = [f"--partition={partition.name}", f"--time={minutes}", "--ntasks=1"]
        if kind is not None:
            options.append("--gres=gpu:" + (f"{kind}:1" if kind else "1"))
        tried = ask(["sbatch", "--test-only", *options, "--wrap=true"], LIMIT_S, env=_environment())
        start = slurm_output.would_start(tried.errors)
        what = "1 core" if kind is None else f"1 GPU {kind}".strip()
        planned.append({"partition": partition.name, "what": what, "minutes": minutes, "start": start})
    return planned


def _nothing() -> dict[str, int]:
    return {"nodes": 0, "nodes_down": 0, "cpus": 0, "cpus_free": 0}


def _is_usable(state: str) -> bool:
    return not node_states.flags(state) & (node_states.NO_JOBS | node_states.MAINTENANCE)


def _add(total: dict[str, int], entry: dict[str, str], *, usable: bool) -> None:
    cpus, used = slurm_output.number(entry, "CPUTot"), slurm_output.number(entry, "CPUAlloc")
    total["nodes"] += 1
    total["nodes_down"] += not usable
    total["cpus"] += cpus
    total["cpus_free"] += cpus - used if usable else 0


def _count_gpus(gpus: dict[str, dict[str, int]], entry: dict[str, str], *, usable: bool) -> None:
    used = slurm_output.gpus(entry.get("GresUsed", ""))
    for kind, count in slurm_output.gpus(entry.get("Gres", "")).items():
        total = gpus.setdefault(kind, {"count": 0, "free": 0})
        total["count"] += count
        total["free"] += count - used.get(kind, 0) if usable else 0


def _waiting(ask: Ask) -> dict[str, int]:
    """How many jobs wait in each partition, of those that Slurm shows."""
    counts: dict[str, int] = {}
    for line in ask(slurm_client.squeue("%P", "--states=PENDING"), LIMIT_S).output.splitlines():
        for name in line.strip().split(","):
            counts[name] = counts.get(name, 0) + 1
    return counts


def _maintenance(ask: Ask) -> list[dict[str, Any]]:
    shown = slurm_output.records(
        ask(slurm_client.RESERVATIONS, LIMIT_S, env=_environment()).output, "ReservationName"
    ).values()
    soon = time.time() + 7 * 86400
    return [
        {"name": entry["ReservationName"], "start": whole(entry["StartTime"]), "end": whole(entry.get("EndTime", "")),
         "nodes": entry.get("Nodes", "")}
        for entry in shown
        if "MAINT" in entry.get("Flags", "") and (whole(entry.get("StartTime", "")) or 0) < soon
    ]  # fmt: skip
