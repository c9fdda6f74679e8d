"""What the pages show, of what the agent answered: texts and shares, no markup."""

from __future__ import annotations

import re
import time
from typing import Any

from ..._shared import slurm_output
from ..._shared.values import format_size, format_time

GOOD, POOR = 50, 10
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
    return {
        **row,
        "start": moment(row["start"]),
        "end": moment(row["end"]),
        "elapsed": format_time(row["elapsed"]),
        "good": row["state"] == "COMPLETED",
        "cpu": _share(row["cpu_used"], row["cpu_asked"]),
        "cpu_text": f"{format_time(row['cpu_used'])} of {format_time(row['cpu_asked'])}",
        "memory": _share(row["memory_used"], row["memory_asked"]),
        "memory_text": f"{format_size(row['memory_used'])} of {format_size(row['memory_asked'])}",
    }


def _share(used: float, asked: float) -> dict[str, Any] | None:
    """A bar of what was used of what was asked for; None where that is not known."""
    if not asked:
        return None
    percent = round(100 * used / asked)
    level = "good" if percent >= GOOD else "poor" if percent < POOR else "fair"
    return {"percent": percent, "width": min(percent, 100), "level": level}


def one_job(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the page of one job."""
    why = answer.get("why")
    if why is None:
        return {"trouble": answer.get("trouble", ""), "why": None}
    advice = [each for cause in why["causes"] for each in cause["advice"]]
    gains = {
        index: format_time(each["gain_s"]) for index, each in enumerate(advice) if each.get("gain_s")
    }  # fmt: skip
    return {
        "trouble": "",
        "why": why,
        "expected": moment(why.get("expected_start")),
        "advice": [{**each, "gain": gains.get(index, "")} for index, each in enumerate(advice)],
    }


def cluster(answer: dict[str, Any]) -> dict[str, Any]:
    """Of the page of the cluster."""
    return {
        "trouble": answer.get("trouble", ""),
        "partitions": answer.get("partitions", []),
        "gpus": answer.get("gpus", []),
        "maintenance": [
            {**each, "start": moment(each["start"]), "end": moment(each["end"])}
            for each in answer.get("maintenance", [])
        ],
    }
