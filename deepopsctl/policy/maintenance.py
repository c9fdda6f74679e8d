"""`maintenance` of cluster.yml: single values, the inventory variable, and lines of cluster.yml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from deepopsctl.model.cluster import Maintenance
from deepopsctl.node_programs._shared.slurm_output import minutes
from deepopsctl.policy.values import check_choice
from deepopsctl.text.node_sets import fold, fold_in_order, shorten
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.yaml_writer import flow

REPEATS = ("daily", "weekly", "weekday", "weekend")
_LONGEST = 90 * 24 * 60


def check_name(text: str) -> str:
    """A reservation's name."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", text) or text.startswith("deepopsctl-"):
        raise RefusedError(f"{shorten(text)!r} can't be a reservation's name", "use letters, digits, - and _")
    return text


def check_start(text: str) -> datetime:
    """A time of day of a day, without a time zone: the controller's."""
    for form in ("%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"):
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise RefusedError(f"{shorten(text)!r} is not a valid time", "write it like 2026-12-01T08:00")


def check_duration(text: str) -> int:
    """Minutes, from a time as Slurm writes it."""
    try:
        total = minutes(text) or 0
    except ValueError:
        total = 0
    if not 0 < total <= _LONGEST:
        hint = "write minutes, 04:00:00 or 2-00:00:00; 90 days at most"
        raise RefusedError(f"{shorten(text)!r} is not a valid duration", hint)
    return total


def check_repeat(text: str) -> str:
    """How often; '' for once."""
    return check_choice(text, REPEATS) if text else ""


def variable(declared: Iterable[Maintenance]) -> list[dict[str, object]]:
    """The inventory variable `slurm_maintenance`."""
    return [
        {"name": each.name, "start": each.start.isoformat(), "minutes": each.minutes, "nodes": fold(each.nodes),
         **({"repeat": each.repeat} if each.repeat else {})}
        for each in declared
    ]  # fmt: skip


def maintenance_lines(declared: Iterable[Maintenance]) -> Iterator[str]:
    """Lines of cluster.yml; none without maintenance."""
    entries = [
        {"name": each.name, "start": each.start.isoformat(timespec="minutes"), "duration": str(each.minutes),
         "nodes": "all" if each.everything else fold_in_order(each.nodes),
         **({"repeat": each.repeat} if each.repeat else {})}
        for each in declared
    ]  # fmt: skip
    if entries:
        yield from ("", "maintenance:", *(f"  - {flow(entry)}" for entry in entries))
