"""Every query of every dashboard, with variables filled in, to detect panels without data.

A panel that names what it needs (`Needs`) may be empty on a cluster without that; every other one may not.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from deepopsctl.monitoring.dashboards import DASHBOARDS
from deepopsctl.monitoring.dashboards.model import Dashboard, Needs, Variable
from deepopsctl.monitoring.dashboards.panels import is_asked_at_once

# Grafana's own variables, for the last hour
TIMES: Mapping[str, str] = {"__rate_interval": "1m", "__interval": "15s", "__range": "1h"}
ANYTHING = ".+"
# what has no such label is in "All" as well
ALL = ".*"

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


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


def for_cluster(cluster: str, have: Container[Needs], dashboards: Iterable[Dashboard] = DASHBOARDS) -> list[Asked]:
    """Queries that must return data on a cluster with all of `have`, with all values selected in all variables."""
    queries = []
    for dashboard in dashboards:
        values = {variable.name: variable.all_value or ANYTHING for variable in dashboard.variables}
        values["cluster"] = _literal(cluster)
        queries += [*_offers(dashboard, values), *_panels(dashboard, values)]
    return [asked for asked in queries if asked.needs is None or asked.needs in have]


def empty_in(source: Source, dashboards: Iterable[Dashboard] = DASHBOARDS) -> list[Empty]:
    """Queries without data with Grafana's default variables, whatever they need."""
    results: list[Empty] = []
    for dashboard in dashboards:
        values, without = _choices(source, dashboard)
        results += [Empty(asked, "no values") for asked in without]
        results += [empty for asked in _panels(dashboard, values) if (empty := _empty(source, asked))]
    return results


def as_opened(source: Source, dashboard: Dashboard) -> list[Asked]:
    """Queries of a dashboard's panels when it is opened."""
    return list(_panels(dashboard, _choices(source, dashboard)[0]))


def fill(text: str, values: Mapping[str, str]) -> str:
    """A query with the values of its variables."""
    known = {**TIMES, **values}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in known:
            raise UnknownVariableError(f"{text}: no variable ${name}")
        return known[name]

    return _VARIABLE.sub(value, text)


def _choices(source: Source, dashboard: Dashboard) -> tuple[dict[str, str], list[Asked]]:
    """Values of its variables, chosen one after the other; and those that offer none."""
    values: dict[str, str] = {}
    without = []
    for variable in dashboard.variables:
        asked = _offer(dashboard, variable, values)
        offered = source.label_values(fill(variable.selector, values), variable.name)
        without += [] if offered else [asked]
        values[variable.name] = _chosen(variable, offered, source, values)
    return values, without


def _empty(source: Source, asked: Asked) -> Empty | None:
    try:
        return None if source.count(asked.text) else Empty(asked)
    except ValueError as error:
        return Empty(asked, str(error))


def _chosen(variable: Variable, offered: list[str], source: Source, values: Mapping[str, str]) -> str:
    """`All` as Grafana writes it, or the most relevant value."""
    if variable.is_one:
        examples = source.label_values(fill(variable.example, values), variable.name) if variable.example else []
        return _literal((examples or offered or [""])[0])
    return variable.all_value or "|".join(_literal(value) for value in offered)


def _literal(value: str) -> str:
    """A value in a pattern, in PromQL's quotes."""
    return re.escape(value).replace("\\", "\\\\")


def _offers(dashboard: Dashboard, values: Mapping[str, str]) -> Iterator[Asked]:
    for variable in dashboard.variables:
        yield _offer(dashboard, variable, values)


def _offer(dashboard: Dashboard, variable: Variable, values: Mapping[str, str]) -> Asked:
    text = fill(variable.selector, values)
    return Asked(dashboard.title, f"variable {variable.name}", f"group by ({variable.name}) ({text})", variable.needs)


def _panels(dashboard: Dashboard, values: Mapping[str, str]) -> Iterator[Asked]:
    for row in dashboard.rows:
        for panel in row.panels:
            for query in panel.queries:
                yield Asked(
                    dashboard.title,
                    panel.title,
                    fill(query.expr, values),
                    query.needs or panel.needs,
                    is_asked_at_once(panel),
                )
