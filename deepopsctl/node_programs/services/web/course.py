"""What a job used over time, of what it has: one question to Prometheus, made of the job's number alone."""

from __future__ import annotations

import math
from typing import Any

from ...commands.job_report.prometheus import Ask

# points of a plot, and the shortest time between two
POINTS, SHORTEST_S = 150, 15
# what one point is of: a scrape at least, and of long jobs no more than Prometheus reads at once
_LEAST_S, _MOST_S = 60, 600
USED, ASKED = "used", "asked"
# {job} is a matcher, {window} the time of one point
_SERIES = {
    "cpu": {
        USED: "sum(max by (node) (avg_over_time(job:cpu_used:cores{job}[{window}])))",
        ASKED: "sum(max by (node) (max_over_time(deepops_job_cpus{job}[{window}])))",
    },
    "memory": {
        USED: "sum(max by (node) (max_over_time(job:memory_used:bytes{job}[{window}])))",
        ASKED: "sum(max by (node) (max_over_time(deepops_job_memory_requested_bytes{job}[{window}])))",
    },
    "gpu": {
        USED: "sum(max by (node, gpu) (avg_over_time(job:gpu_utilization:ratio{job}[{window}])))",
        ASKED: "count(count by (node, gpu) (max_over_time(deepops_job_gpu{job}[{window}])))",
    },
    "gpu_memory": {
        USED: "sum(max by (node, gpu) (max_over_time(job:gpu_memory_used:bytes{job}[{window}])))",
        ASKED: "sum(max by (node, gpu) (max_over_time(job:gpu_memory_total:bytes{job}[{window}])))",
    },
}

Points = list[tuple[int, float]]


def read(number: int, start: int, end: int, ask: Ask) -> dict[str, Any]:
    """{step, of: {measure: {used: [[time, value]], asked: ...}}}; a measure without samples is not in it."""
    step = max(SHORTEST_S, math.ceil((end - start) / POINTS))
    parameters = {"job": f'{{jobid="{number:d}"}}', "window": f"{min(max(step, _LEAST_S), _MOST_S)}s"}
    parts = (
        f'label_replace({text.format(**parameters)}, "figure", "{measure}.{side}", "", "")'
        for measure, sides in _SERIES.items()
        for side, text in sides.items()
    )
    answer = ask("query_range", {"query": " or ".join(parts), "start": start, "end": end, "step": step})
    of: dict[str, dict[str, Points]] = {}
    for series in answer:
        measure, _, side = series.get("metric", {}).get("figure", "").partition(".")
        if measure in _SERIES and side in _SERIES[measure]:
            of.setdefault(measure, {})[side] = _points(series["values"])
    return {"step": step, "of": {key: sides for key, sides in of.items() if sides.get(USED)}}


def _points(values: list[list[Any]]) -> Points:
    known = ((int(at), float(text)) for at, text in values)
    return [(at, value) for at, value in known if math.isfinite(value) and value >= 0]
