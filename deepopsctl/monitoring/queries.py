"""Every query of every dashboard, with variables filled in, to detect panels without data.

The dashboards are JSON files of the role grafana. A panel may be empty only on a cluster without what the role's
may-be-empty.yml names for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import yaml

from deepopsctl.content import content_dir

# Grafana's own variables, for the last hour
TIMES: Mapping[str, str] = {"__rate_interval": "1m", "__interval": "15s", "__range": "1h"}
ANYTHING = ".+"
_OFFERED = re.compile(r"label_values\((.*), (\w+)\)")
# where nothing matches, Grafana shows 0; with that a query could never be empty
_ELSE_ZERO = " or vector(0)"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class Needs(StrEnum):
    """What a panel shows nothing without, on a cluster that is in order."""

    GPUS = "GPUs"
    JOBS = "running jobs"
    GPU_JOBS = "running jobs with GPUs"
    STARTED = "jobs that started within the last hour"
    WAITING = "waiting jobs"
    WAITING_GPU = "waiting jobs that request GPUs"
    DRAINED = "drained nodes"
    ALERTS = "firing alerts"
    DEAD = "nodes that do not answer"
    STORAGE = "storage in cluster.yml"
    DISKS = "local disks"


class UnknownVariableError(ValueError):
    """A query uses a variable that its dashboard does not have."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a panel, its variables filled in; or one that offers the values of a variable."""

    dashboard: str
    panel: str
    text: str
    needs: Needs | None = None
    # for this moment alone, not for the dashboard's range of time
    at_once: bool = False


@cache
def dashboards() -> tuple[Mapping[str, Any], ...]:
    """The dashboards as Grafana reads them."""
    files = sorted((content_dir() / "roles" / "grafana" / "files" / "dashboards").glob("*.json"))
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in files)


@cache
def may_be_empty() -> Mapping[str, Mapping[str, Any]]:
    """What panels and variables may be empty without: by the UID of the dashboard and the panel's title."""
    path = content_dir() / "roles" / "grafana" / "files" / "may-be-empty.yml"
    loaded: Mapping[str, Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def panels(dashboard: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The panels of a dashboard without the rows' headlines."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def variables(dashboard: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The choices above the panels."""
    offered: list[Mapping[str, Any]] = dashboard["templating"]["list"]
    return offered


def for_cluster(cluster: str, have: Container[Needs]) -> list[Asked]:
    """Queries that must return data on a cluster with all of `have`, with all values selected in all variables."""
    queries = []
    for dashboard in dashboards():
        values = {variable["name"]: str(variable.get("allValue") or ANYTHING) for variable in variables(dashboard)}
        values["cluster"] = literal(cluster)
        queries += [*_offers(dashboard, values), *panel_queries(dashboard, values)]
    return [asked for asked in queries if asked.needs is None or asked.needs in have]


def fill(text: str, values: Mapping[str, str]) -> str:
    """A query with the values of its variables."""
    known = {**TIMES, **values}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in known:
            raise UnknownVariableError(f"{text}: no variable ${name}")
        return known[name]

    return _VARIABLE.sub(value, text)


def literal(value: str) -> str:
    """A value in a pattern, in PromQL's quotes."""
    return re.escape(value).replace("\\", "\\\\")


def selector(variable: Mapping[str, Any]) -> str:
    """The series whose label of the variable's name has its values."""
    text, name = variable["query"]["query"], variable["name"]
    match = _OFFERED.fullmatch(text)
    if not match or match[2] != name:
        raise ValueError(f"variable {name}: {text} is not label_values(SERIES, {name})")
    return match[1]


def _offers(dashboard: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Asked]:
    for variable in variables(dashboard):
        yield offered_by(dashboard, variable, values)


def offered_by(dashboard: Mapping[str, Any], variable: Mapping[str, Any], values: Mapping[str, str]) -> Asked:
    """The query for the values of a variable."""
    what = f"variable {variable['name']}"
    text = f"group by ({variable['name']}) ({fill(selector(variable), values)})"
    return Asked(dashboard["title"], what, text, _needs(dashboard, what))


def panel_queries(dashboard: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Asked]:
    """The queries of its panels."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Asked(
                dashboard["title"],
                panel["title"],
                fill(target["expr"].removesuffix(_ELSE_ZERO), values),
                _needs(dashboard, panel["title"], target["refId"]),
                target["instant"],
            )


def _needs(dashboard: Mapping[str, Any], title: str, letter: str = "") -> Needs | None:
    needs = may_be_empty().get(dashboard["uid"], {}).get(title)
    needs = needs.get(letter) if isinstance(needs, dict) else needs
    return Needs(needs) if needs else None
