"""The dashboards as Grafana opens them: each variable has the value that it begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from deepopsctl.monitoring.queries import (
    Asked,
    dashboards,
    fill,
    literal,
    offered_by,
    panel_queries,
    selector,
    variables,
)

# Of a variable with one value: series to take an example from that all panels have data for.
_EXAMPLES: Mapping[str, str] = {"jobid": 'job:gpu_utilization:ratio{cluster=~"$cluster", user=~"$user"}'}


@dataclass(frozen=True, slots=True)
class Empty:
    """A query that has nothing to show, or that Prometheus refuses with these words."""

    asked: Asked
    message: str = ""


class Source(Protocol):
    """The queries to Prometheus."""

    def count(self, text: str) -> int:
        """The number of series that a query gives; a ValueError in Prometheus' words where it refuses it."""
        ...

    def label_values(self, selector: str, label: str) -> list[str]:
        """The values of a label in the series of a selector."""
        ...


def empty_in(source: Source) -> list[Empty]:
    """Queries without data with Grafana's default variables, whatever they need."""
    results: list[Empty] = []
    for dashboard in dashboards():
        values, without = _choices(source, dashboard)
        results += [Empty(asked, "no values") for asked in without]
        results += [empty for asked in panel_queries(dashboard, values) if (empty := _empty(source, asked))]
    return results


def as_opened(source: Source, dashboard: Mapping[str, Any]) -> list[Asked]:
    """Queries of a dashboard's panels when it is opened."""
    return list(panel_queries(dashboard, _choices(source, dashboard)[0]))


def _choices(source: Source, dashboard: Mapping[str, Any]) -> tuple[dict[str, str], list[Asked]]:
    """Values of its variables, chosen one after the other; and those that offer none."""
    values: dict[str, str] = {}
    without = []
    for variable in variables(dashboard):
        offered = source.label_values(fill(selector(variable), values), variable["name"])
        without += [] if offered else [offered_by(dashboard, variable, values)]
        values[variable["name"]] = _chosen(variable, offered, source, values)
    return values, without


def _empty(source: Source, asked: Asked) -> Empty | None:
    try:
        return None if source.count(asked.text) else Empty(asked)
    except ValueError as error:
        return Empty(asked, str(error))


def _chosen(variable: Mapping[str, Any], offered: list[str], source: Source, values: Mapping[str, str]) -> str:
    """`All` as Grafana writes it, or the most relevant value."""
    name = variable["name"]
    if variable["includeAll"]:
        return str(variable.get("allValue") or "|".join(literal(value) for value in offered))
    examples = source.label_values(fill(_EXAMPLES[name], values), name) if name in _EXAMPLES else []
    return literal((examples or offered or [""])[0])
