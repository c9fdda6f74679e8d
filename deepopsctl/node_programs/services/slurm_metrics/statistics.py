"""sdiag's figures by the names of Slurm's own endpoint; each release prints some lines more than the one before."""

from __future__ import annotations

import re
from collections.abc import Mapping

COMMAND = ("sdiag",)

# title of a section in lower case, then {line: name}
_NAMES: Mapping[str, Mapping[str, str]] = {
    "": {
        "sdiag output at": "slurm_sched_stats_timestamp",
        "data since": "slurm_last_proc_req_start",
        "server thread count": "slurm_server_thread_cnt",
        "agent queue size": "slurm_agent_queue_size",
        "agent count": "slurm_agent_cnt",
        "agent thread count": "slurm_agent_thread_cnt",
        "dbd agent queue size": "slurm_slurmdbd_queue_size",
        "jobs submitted": "slurm_sdiag_jobs_submitted",
        "jobs started": "slurm_sdiag_jobs_started",
        "jobs completed": "slurm_sdiag_jobs_completed",
        "jobs canceled": "slurm_sdiag_jobs_canceled",
        "jobs failed": "slurm_sdiag_jobs_failed",
        "job states ts": "slurm_sdiag_job_states_ts",
        "jobs pending": "slurm_sdiag_jobs_pending",
        "jobs running": "slurm_sdiag_jobs_running",
    },
    "main schedule statistics": {
        "last cycle": "slurm_schedule_cycle_last",
        "max cycle": "slurm_schedule_cycle_max",
        "total cycles": "slurm_schedule_cycle_cnt",
        "mean cycle": "slurm_sched_mean_cycle",
        "mean depth cycle": "slurm_sched_mean_depth_cycle",
        "last queue length": "slurm_schedule_queue_len",
    },
    "main scheduler exit": {
        "end of job queue": "slurm_sched_exit_end",
        "hit default_queue_depth": "slurm_sched_exit_max_depth",
        "hit sched_max_job_start": "slurm_sched_exit_max_job_start",
        "blocked on licenses": "slurm_sched_exit_lic",
        "hit max_rpc_cnt": "slurm_sched_exit_rpc_cnt",
        "timeout": "slurm_sched_exit_timeout",
    },
    "backfilling stats": {
        "total backfilled jobs (since last slurm start)": "slurm_backfilled_jobs",
        "total backfilled jobs (since last stats cycle start)": "slurm_last_backfilled_jobs",
        "total backfilled heterogeneous job components": "slurm_backfilled_het_jobs",
        "total cycles": "slurm_bf_cycle_cnt",
        "last cycle when": "slurm_bf_when_last_cycle",
        "last cycle": "slurm_bf_cycle_last",
        "max cycle": "slurm_bf_cycle_max",
        "mean cycle": "slurm_bf_mean_cycle",
        "last depth cycle": "slurm_bf_last_depth",
        "last depth cycle (try sched)": "slurm_bf_last_depth_try",
        "depth mean": "slurm_bf_depth_mean",
        "depth mean (try depth)": "slurm_bf_try_depth_mean",
        "last queue length": "slurm_bf_queue_len",
        "queue length mean": "slurm_bf_queue_len_mean",
        "last table size": "slurm_bf_table_size",
        "mean table size": "slurm_bf_mean_table_sz",
    },
    "backfill exit": {
        "end of job queue": "slurm_bf_exit_end",
        "hit bf_max_job_start": "slurm_bf_exit_max_job_start",
        "hit bf_max_job_test": "slurm_bf_exit_max_job_test",
        "system state changed": "slurm_bf_exit_state_changed",
        "hit table size limit": "slurm_bf_exit_table_limit",
        "timeout": "slurm_bf_exit_timeout",
    },
}
NAMES = frozenset(name for section in _NAMES.values() for name in section.values()) | {"slurm_sdiag_latency"}
# what follows counts requests by type and by user: not read, as it has users' names
_END = "remote procedure call statistics"
_LATENCY = re.compile(r"Latency for [0-9]+ calls to gettimeofday\(\): ([0-9]+)")
# in its brackets are the name of the setting, a unit or a limit; if they distinguish two lines they are in the table
_REMARK = re.compile(r" \((?:microseconds|bf_node_space_size|max_sched_time|bf_max_time)\)")


def parse(text: str) -> dict[str, float]:
    """{name: value}; lines that are not in the table are left out."""
    figures: dict[str, float] = {}
    section = _NAMES[""]
    for raw in text.splitlines():
        line = _REMARK.sub("", raw.strip())
        title = line.rstrip(":").lower()
        if title.startswith(_END):
            break
        if match := _LATENCY.match(line):
            figures["slurm_sdiag_latency"] = float(match[1])
        elif title in _NAMES and title:
            section = _NAMES[title]
        else:
            figures.update(_value(line, section))
    return figures


def _value(line: str, section: Mapping[str, str]) -> dict[str, float]:
    for opening in ("sdiag output at", "Data since"):
        if line.startswith(opening):
            return _figure(section.get(opening.lower(), ""), line[len(opening) :])
    label, colon, value = line.partition(":")
    return _figure(section.get(label.strip().lower(), ""), value) if colon else {}


def _figure(name: str, text: str) -> dict[str, float]:
    """A number, or the Unix time in the brackets after a date; nothing of `N/A`."""
    stamp = re.search(r"\(([0-9]+)\)\s*$", text)
    word = stamp[1] if stamp else text.strip()
    return {name: float(word)} if name and re.fullmatch(r"[0-9]+(\.[0-9]+)?", word) else {}
