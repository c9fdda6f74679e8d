"""The report as people read it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..._shared.values import format_count, format_share, format_size, format_time
from .advice import SHORTEST_S, advise
from .measures import Measure, Report
from .summary import GpuUse

_BAR = 20
# a node of eight GPUs, and its neighbour
_MOST_GPUS = 16
_UNKNOWN = "unknown"


def render(report: Report) -> str:
    """One job."""
    job = report.job
    lines = [f"Job {job.id}  {job.name}", ""]
    lines += _facts(report)
    if not job.began:
        return "\n".join([*lines, "", "It has not run, so it has used nothing."]) + "\n"
    lines += ["", *_table(report)]
    if report.gpus:
        lines += ["", *_gpus(report.gpus, job.summary.more_gpus if job.summary else 0)]
    lines += _remarks(report)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _facts(report: Report) -> list[str]:
    job = report.job
    owner = f"{job.user or '?'}, account {job.account or '?'}, partition {job.partition or '?'}"
    nodes = job.nodes if job.node_count < 2 else f"{job.nodes} ({job.node_count} nodes)"
    ended = f"{_when(job.start)} to {'now' if job.runs else _when(job.end)}"
    state = job.state if job.exit_code in ("", "0:0") or job.runs else f"{job.state}, exit status {job.exit_code}"
    facts = [("Owner", owner), ("State", state)]
    facts += [("Ran", ended), ("Nodes", nodes)] if job.began else []
    return [f"{key:<7} {value}" for key, value in facts]


def _when(seconds: int | None) -> str:
    return "?" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _table(report: Report) -> list[str]:
    job = report.job
    rows = [_row("Time", report.time, format_time) or ["Time", format_time(job.elapsed), "no limit", "", ""]]
    rows.append(_row("CPUs", report.cpu, format_count) or ["CPUs", _UNKNOWN, format_count(job.cpus), "", ""])
    asked = _UNKNOWN if job.memory_asked is None else format_size(job.memory_asked)
    used = _UNKNOWN if job.memory_used is None else format_size(job.memory_used)
    rows.append(_row("Memory", report.memory, format_size) or ["Memory", used, asked, "", ""])
    if job.gpus:
        rows.append(_row("GPUs", report.gpu, format_count) or ["GPUs", _UNKNOWN, format_count(job.gpus), "", ""])
        rows += [row for row in (_row("GPU memory", report.gpu_memory, format_size),) if row]
    return _columns([["", "used", "asked", "", ""], *rows])


def _row(name: str, measure: Measure | None, format_value: object) -> list[str] | None:
    if measure is None or not callable(format_value):
        return None
    share = format_share(measure.used, measure.asked)
    return [name, format_value(measure.used), format_value(measure.asked), share, _bar(measure.share)]


def _bar(share: float) -> str:
    full = min(_BAR, max(0, round(share * _BAR)))
    return f"[{'#' * full}{'.' * (_BAR - full)}]"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in (1, 2, 3)), row[4]]) for row in rows]


def _gpus(gpus: Sequence[GpuUse], more: int) -> list[str]:
    rows = [["GPU", "busy", "at most", "memory", ""]]
    for each in gpus[:_MOST_GPUS]:
        memory = "?" if each.memory is None else format_size(each.memory)
        of = f"of {format_size(each.total)}" if each.total else ""
        rows.append([f"{each.node}:{each.gpu}", _ratio(each.use), _ratio(each.most), memory, of])
    left = more + max(0, len(gpus) - _MOST_GPUS)
    return [*_columns(rows), *([f"and {left} more"] if left else [])]


def _ratio(value: float | None) -> str:
    return "?" if value is None else format_share(value, 1.0)


def _remarks(report: Report) -> list[str]:
    job, remarks = report.job, []
    advice = advise(report)
    if job.elapsed < SHORTEST_S and not advice:
        remarks.append(f"It ran for less than {format_time(SHORTEST_S)}: too short for advice.")
    elif job.gpus and not report.gpus and job.runs:
        remarks.append("GPU use is available after its end.")
    elif job.gpus and not report.gpus:
        remarks.append("What its GPUs did is not known: monitoring has left no summary of it.")
    if job.memory_used is None and report.memory is None and not job.runs:
        remarks.append("Its memory use is unknown: Slurm has no sample of it.")
    if report.fullest:
        remarks.append(f"Most memory on one node: {report.fullest}.")
    if advice:
        remarks += ["Next time:", *(f"- {sentence}" for sentence in advice)]
    return ["", *remarks] if remarks else []
