"""A user's jobs and the cluster, as Slurm shows them to the user who asks: for the pages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from ..._shared import command, node_states, slurm_client, slurm_output
from ..._shared.command import Result
from ..._shared.slurm_output import clean, whole

Ask = Callable[..., Result]
LIMIT_S = 60
# the newest of them: a page of 100,000 helps nobody
MOST = 200
WHY = "/usr/local/bin/why"
_LIVE = "%i|%T|%P|%a|%V|%S|%l|%M|%C|%m|%b|%D|%N|%r"
_LIVE_KEYS = (
    "id", "state", "partition", "account", "submitted", "start", "limit", "elapsed", "cpus", "memory", "gres", "nodes",
    "where", "reason",
)  # fmt: skip
_DELIMITER = "\x1f"
_ENDED_KEYS = (
    "JobID", "State", "Partition", "Account", "Start", "End", "ElapsedRaw", "AllocCPUS", "ReqMem", "AllocTRES",
    "TotalCPU", "MaxRSS", "ExitCode", "JobName",
)  # fmt: skip
_NAME = "%i|%j"


def listed(ask: Ask, days: int) -> dict[str, Any]:
    """The jobs that wait and run, and those that have ended in these days, the newest first."""
    environment = command.slurm_environment(SLURM_TIME_FORMAT="%s", TZ="UTC")
    live = ask(slurm_client.squeue(_LIVE, "--me", "--array"), LIMIT_S, env=environment)
    if not live.ok:
        return {"trouble": clean(live.failure, 300), "live": [], "ended": []}
    names = _names(ask(slurm_client.squeue(_NAME, "--me", "--array"), LIMIT_S, env=environment).output)
    rows = [dict(zip(_LIVE_KEYS, row)) for row in slurm_output.rows(live.output, _LIVE)]
    for row in rows:
        row["name"] = names.get(row["id"], "")
    ended, trouble = _ended(ask, max(1, min(days, 90)), environment)
    return {"trouble": trouble, "more": max(len(rows), len(ended)) > MOST, "live": rows[:MOST], "ended": ended[:MOST]}


def _names(text: str) -> dict[str, str]:
    """Names are texts of users': a line is a number, a bar, and all else."""
    pairs = (line.partition("|") for line in text.splitlines())
    return {number: clean(name, 80) for number, bar, name in pairs if bar}


def _ended(ask: Ask, days: int, environment: dict[str, str]) -> tuple[list[dict[str, Any]], str]:
    """Jobs of the accounting, and why there are none."""
    argv = [
        "sacct", "--parsable2", "--noheader", "--delimiter=" + _DELIMITER, f"--starttime=now-{days}days",
        "--state=BOOT_FAIL,CANCELLED,COMPLETED,DEADLINE,FAILED,NODE_FAIL,OUT_OF_MEMORY,PREEMPTED,TIMEOUT",
        "--endtime=now", "--format=" + ",".join(_ENDED_KEYS),
    ]  # fmt: skip
    result = ask(argv, LIMIT_S, env=environment)
    if not result.ok:
        return [], clean(result.failure, 300)
    jobs: dict[str, dict[str, Any]] = {}
    for line in result.output.split("\n"):
        words = line.split(_DELIMITER, len(_ENDED_KEYS) - 1)
        if len(words) < len(_ENDED_KEYS) or not words[0][:1].isdigit():
            continue
        row = dict(zip(_ENDED_KEYS, words))
        number, _, step = row["JobID"].partition(".")
        if not step:
            jobs[number] = _job(row)
        elif number in jobs:
            # steps have what was used of memory
            used = slurm_output.size(row["MaxRSS"]) or 0
            jobs[number]["memory_used"] = max(used, jobs[number]["memory_used"])
    return sorted(jobs.values(), key=lambda job: job["end"], reverse=True), ""


def _job(row: dict[str, str]) -> dict[str, Any]:
    tres = slurm_output.tres(row["AllocTRES"])
    cpus, elapsed = whole(row["AllocCPUS"]) or 0, whole(row["ElapsedRaw"]) or 0
    return {
        "id": clean(row["JobID"], 40),
        "name": clean(row["JobName"].strip(), 80),
        "state": clean(row["State"], 40),
        "partition": row["Partition"],
        "account": row["Account"],
        "start": whole(row["Start"]) or 0,
        "end": whole(row["End"]) or 0,
        "elapsed": elapsed,
        "cpus": cpus,
        "cpu_asked": cpus * elapsed,
        "cpu_used": slurm_output.seconds(row["TotalCPU"]) or 0.0,
        "memory_asked": slurm_output.size(tres.get("mem", ""), "M") or 0,
        "memory_used": 0,
        "gpus": sum(slurm_output.gpus_of_tres(tres).values()),
        "exit": row["ExitCode"],
    }


def explained(job: str, ask: Ask) -> dict[str, Any]:
    """What `why` says of it, as far as Slurm shows the job to the user who asks."""
    result = ask([WHY, "--json", job], LIMIT_S)
    if result.ok:
        answer: dict[str, Any] = json.loads(result.output)
        return {"why": answer}
    return {"trouble": clean(result.failure.replace("error: ", ""), 300)}


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
    environment = command.slurm_environment(SLURM_TIME_FORMAT="%s", TZ="UTC")
    shown = slurm_output.records(
        ask(slurm_client.RESERVATIONS, LIMIT_S, env=environment).output, "ReservationName"
    ).values()
    soon = time.time() + 7 * 86400
    return [
        {"name": entry["ReservationName"], "start": whole(entry["StartTime"]), "end": whole(entry.get("EndTime", "")),
         "nodes": entry.get("Nodes", "")}
        for entry in shown
        if "MAINT" in entry.get("Flags", "") and (whole(entry.get("StartTime", "")) or 0) < soon
    ]  # fmt: skip
