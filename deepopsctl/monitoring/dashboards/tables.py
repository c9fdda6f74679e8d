"""Tables: rows of several queries become one by their labels, columns get the names that people read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deepopsctl.monitoring.dashboards.elements import OF_A_ROW, letter, threshold_steps, url
from deepopsctl.monitoring.dashboards.model import Column, Link, Table


def transformations(table: Table) -> list[dict[str, Any]]:
    """One row for the same labels, and the named columns alone, in their order."""
    names = [_field(table, column) for column in table.columns]
    chosen = {"include": {"names": names}}
    order = {
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": {name: column.title for name, column in zip(names, table.columns, strict=True)},
        "excludeByName": {},
    }
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": chosen},
        {"id": "organize", "options": order},
    ]


def field_overrides(table: Table) -> list[dict[str, Any]]:
    """Unit, colour and link of the columns that have their own."""
    overrides = []
    for column in table.columns:
        properties = list(_properties(table, column))
        if properties:
            overrides.append({"matcher": {"id": "byName", "options": column.title}, "properties": properties})
    return overrides


def _field(table: Table, column: Column) -> str:
    """What Grafana calls a column before it is renamed."""
    if isinstance(column.source, str):
        return column.source
    return f"Value #{letter(column.source)}" if len(table.queries) > 1 else "Value"


def _properties(table: Table, column: Column) -> Iterator[dict[str, Any]]:
    if column.unit:
        yield {"id": "unit", "value": column.unit.value}
    if column.thresholds:
        yield {"id": "thresholds", "value": threshold_steps(column.thresholds)}
        yield {"id": "custom.cellOptions", "value": {"type": "color-text"}}
    if column.link:
        yield {
            "id": "links",
            "value": [{"title": column.link.title, "url": url(_by_title(table, column.link), OF_A_ROW)}],
        }


def _by_title(table: Table, link: Link) -> Link:
    """The same link, its labels by the titles that their columns have."""
    titles = {column.source: column.title for column in table.columns}
    # Grafana needs quotes around a title of several words
    variables = {variable: titles[label] for variable, label in link.variables.items()}
    return Link(link.dashboard, link.title, variables)
