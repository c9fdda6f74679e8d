"""Pieces of fields that panels and tables share: thresholds, links, names of queries."""

from __future__ import annotations

from typing import Any

from deepopsctl.monitoring.dashboards.model import Link, Thresholds

# where Grafana finds a label: at a series, and in a row of a table
OF_A_SERIES = "__field.labels."
OF_A_ROW = "__data.fields."


def letter(place: int) -> str:
    """The name of a panel's query by its place: A, B ..."""
    return chr(ord("A") + place)


def threshold_steps(thresholds: Thresholds) -> dict[str, Any]:
    """Colours by value."""
    steps = [{"value": value, "color": color} for value, color in thresholds.steps]
    return {"mode": "absolute", "steps": [{"value": None, "color": thresholds.base}, *steps]}


def url(link: Link, source: str) -> str:
    """The address of another dashboard, for the same cluster and time."""
    chosen = [f"var-{variable}=${{{source}{name}}}" for variable, name in link.variables.items()]
    return f"/d/{link.dashboard}?" + "&".join([*chosen, "${cluster:queryparam}", "${__url_time_range}"])
