"""What the pages show, of what the agent answered: texts and shares, no markup."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from ..._shared import slurm_output
from ..._shared.values import format_count, format_size, format_time
from . import plot

GOOD, POOR = 50, 10
# GPUs that count as idle, as a share of those of the job
IDLE = 0.01
# of a limit of space
NEARLY, FULL = 80, 95
# Slurm's plans are of this minute
SOON_S = 60
NO_ANSWER = (
    "Slurm's controller does not answer now. Jobs and notebooks that run continue; nothing is lost. "
    "Try again in a minute; your administrators see it, too."
)
# of its commands, and of `why`
_SILENT = re.compile(r"unable to contact slurm controller|does not answer|\btimed out\b|\btime out\b", re.IGNORECASE)


def trouble(text: str) -> str:
    """An error as users read it: which of Slurm's functions failed says nothing to them where it does not answer."""
    return NO_ANSWER if _SILENT.search(text) else text


def moment(seconds: Any) -> str:
    """`Mon 30 Nov 14:05`; '' for no time."""
    known = isinstance(seconds, int) and seconds > 0
    return time.strftime("%a %d %b %H:%M", time.localtime(seconds)) if known else ""


def jobs(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the page of one's jobs: those that wait, run and have ended."""
    live = [_live(row) for row in answer.get("live", [])]
    return {
        "trouble": answer.get("trouble", ""),
        "more": answer.get("more", False),
        "accounts": answer.get("accounts", []),
        "waiting": [row for row in live if row["state"] == "PENDING"],
        "running": [row for row in live if row["state"] != "PENDING"],
        "ended": [_ended(row) for row in answer.get("ended", [])],
    }


def _live(row: dict[str, str]) -> dict[str, Any]:
    start = slurm_output.whole(row["start"])
    return {
        **row,
        "gres": "" if row["gres"] in ("N/A", "(null)") else row["gres"].replace("gres/", "").replace("gres:", ""),
        "submitted": moment(slurm_output.whole(row["submitted"])),
        "start": moment(start),
        "reason": "" if row["reason"] in ("None", "N/A") else row["reason"],
    }


def _ended(row: dict[str, Any]) -> dict[str, Any]:
    bars = {key: _bar(row[key], form) for key, form in _MEASURES.items()}
    return {
        **row,
        "start": moment(row["start"]),
        "end": moment(row["end"]),
        "elapsed": format_time(row["elapsed"]),
        "good": row["state"] == "COMPLETED",
        **bars,
    }


def _bar(sides: dict[str, float] | None, form: Callable[[float], str]) -> dict[str, Any] | None:
    """A bar with its text; None where one of its sides is not known."""
    share = _share(sides["used"], sides["asked"]) if sides else None
    return {**share, "text": f"{form(sides['used'])} of {form(sides['asked'])}"} if share and sides else None


def usage(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the page of what was used."""
    recent = answer.get("recent") or {"rows": []}
    return {
        "trouble": answer.get("trouble", ""),
        "counted": moment(answer.get("end")),
        "accounts": [{**each, "percent": _target(each)} for each in answer.get("accounts", [])],
        "rows": [
            {**row, "gpu": _bar({"used": row["gpu_hours_busy"], "asked": row["gpu_hours_seen"]}, _hours)}
            for row in recent["rows"]
        ],
    }


def _target(account: dict[str, Any]) -> str:
    total, target = account["total"], account["target_rgu_years"]
    return f"{total['rgu_years'] / target:.0%}" if total and target else ""


def _hours(value: float) -> str:
    return f"{value:,.1f} GPU-hours"


def _cores(value: float) -> str:
    return f"{format_count(value)} core{'' if value == 1 else 's'}"


def _gpus(value: float) -> str:
    return f"{format_count(value)} GPU{'' if value == 1 else 's'}"


_MEASURES: dict[str, Callable[[float], str]] = {
    "cpu": _cores, "memory": format_size, "gpu": _gpus, "gpu_memory": format_size,
}  # fmt: skip
_TITLES = {"cpu": "Cores", "memory": "Memory", "gpu": "GPUs", "gpu_memory": "GPU memory"}


def _share(used: float, asked: float) -> dict[str, Any] | None:
    """A bar of what was used of what was asked for; None where that is not known."""
    if not asked:
        return None
    percent = round(100 * used / asked)
    level = "good" if percent >= GOOD else "poor" if percent < POOR else "fair"
    return {"percent": percent, "width": min(percent, 100), "level": level}


def one_job(
    answer: dict[str, Any], course: dict[str, Any] | None = None, grafana: str = "", idle_minutes: int = 0
) -> dict[str, Any]:
    """Of the page of one job."""
    why = answer.get("why")
    if why is None:
        return {"trouble": answer.get("trouble", ""), "why": None, "use": [], "unseen": "", "idle": "", "grafana": ""}
    use = answer.get("use")
    advice = [each for cause in why["causes"] for each in cause["advice"]]
    gains = {
        index: format_time(each["gain_s"]) for index, each in enumerate(advice) if each.get("gain_s")
    }  # fmt: skip
    return {
        "trouble": "",
        "why": why,
        "expected": moment(why.get("expected_start")),
        "advice": [{**each, "gain": gains.get(index, "")} for index, each in enumerate(advice)],
        "use": _uses(use, course or {}) if use else [],
        "idle": _idle(use, course or {}, idle_minutes) if use and use["running"] else "",
        "unseen": (course or {}).get("trouble", ""),
        "grafana": _dashboard(use, grafana) if use and use["own"] and grafana else "",
    }


def has_course(use: dict[str, Any] | None) -> bool:
    """Whether monitoring may be asked about this job for who asks: Slurm shows it, and it is theirs."""
    return bool(use and use["own"] and use["start"])


def until(use: dict[str, Any]) -> int:
    """The job's end, or now; a plot of a job that began this second has some width."""
    start, end = int(use["start"]), int(use["end"] or time.time())
    return max(end, start + 1)


def _uses(use: dict[str, Any], course: dict[str, Any]) -> list[dict[str, Any]]:
    """Each measure that is known, by its sum or over time."""
    of, span = course.get("of", {}), (use["start"] or 0, until(use) if use["start"] else 0)
    shown = [
        {
            "key": key,
            "title": _TITLES[key],
            "bar": _bar(use[key], form),
            "plot": plot.draw(of[key], *span, course["step"], form) if key in of else None,
        }
        for key, form in _MEASURES.items()
    ]
    return [each for each in shown if each["bar"] or each["plot"]]


def _idle(use: dict[str, Any], course: dict[str, Any], minutes: int) -> str:
    """What the owner of a running job reads whose GPUs all do nothing for so long; as the mail says it."""
    since = until(use) - 60 * minutes
    used = [value for at, value in course.get("of", {}).get("gpu", {}).get("used", []) if at >= since]
    if not minutes or use["start"] > since or not used or max(used) >= IDLE * (use["gpus"] or 1):
        return ""
    return f"The GPUs of this job have done nothing for {minutes} minutes. It holds them, and is charged for them."


def _dashboard(use: dict[str, Any], grafana: str) -> str:
    """The job's dashboard: its number and times are numbers by now."""
    start, end = 1000 * (use["start"] or 0), 1000 * use["end"] if use["end"] else "now"
    return f"{grafana}/d/deepops-jobs?var-jobid={int(use['number'])}&from={start}&to={end}"


def space(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the page of file systems."""
    rows = answer.get("rows", [])
    return {
        "trouble": answer.get("trouble", ""),
        "rows": [_place(row) for row in rows if not row["problem"]],
        "unknown": [f"{row['path']}: {row['problem']}" for row in rows if row["problem"]],
    }


def _place(row: dict[str, Any]) -> dict[str, Any]:
    whose = {"user": "yours", "project": f"of project {row['who']}", "whole": "all users, as no one has a limit there"}
    return {
        "path": row["path"],
        "whose": whose.get(row["kind"], row["who"]) + (", " + row["source"] if row["source"][:8] == "counted " else ""),
        "space": _limited(row["usage"]["space"], format_size),
        "files": _limited(row["usage"]["files"], lambda value: f"{value:,.0f}"),
        "grace": moment(row["usage"]["grace"]),
    }


def _limited(amount: dict[str, int | None], form: Callable[[float], str]) -> dict[str, Any]:
    """What is used of a limit: unlike what a job has asked for, much of it is the warning."""
    used, limit = amount["used"], amount["soft"] or amount["hard"]
    text = "" if used is None else form(used) + (f" of {form(limit)}" if limit else "")
    bar = _share(used, limit) if limit and used is not None else None
    if bar:
        level = "poor" if bar["percent"] >= FULL else "fair" if bar["percent"] >= NEARLY else "good"
        bar = {**bar, "level": level, "text": text}
    return {"text": text, "bar": bar}


def cluster(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the page of the cluster."""
    return {
        "trouble": answer.get("trouble", ""),
        "partitions": answer.get("partitions", []),
        "gpus": answer.get("gpus", []),
        "waits": [{**each, "text": _wait(each["start"])} for each in answer.get("waits", [])],
        "maintenance": [
            {**each, "start": moment(each["start"]), "end": moment(each["end"])}
            for each in answer.get("maintenance", [])
        ],
    }


def _wait(start: int | None) -> str:
    """`at once`, `in 2h 05m`, of what Slurm plans."""
    if start is None:
        return "not planned: such a job would be refused"
    rest = start - time.time()
    return "at once" if rest < SOON_S else f"in {format_time(rest)}"
