"""Dashboards as the JSON that Grafana reads (schema 39: Grafana 11 and later)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deepopsctl.monitoring.dashboards.elements import OF_A_SERIES, letter, threshold_steps, url
from deepopsctl.monitoring.dashboards.model import Dashboard, Panel, Query, Row, Table, Variable
from deepopsctl.monitoring.dashboards.panels import custom, is_asked_at_once, options
from deepopsctl.monitoring.dashboards.tables import field_overrides, transformations

# of the data source that the role grafana provisions
DATA_SOURCE = {"type": "prometheus", "uid": "deepops-prometheus"}
TAG = "deepopsctl"
SCHEMA_VERSION = 39
COLUMNS = 24
REFRESH = "30s"
# so that a panel's step is not finer than what is scraped
SCRAPE_INTERVAL = "15s"


def text(dashboard: Dashboard) -> str:
    """The content of a dashboard's file, the same for the same dashboard."""
    return json.dumps(render(dashboard), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def render(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana has it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": REFRESH,
        "time": {"from": dashboard.since, "to": "now"},
        "timezone": "browser",
        "links": [_menu()],
        "annotations": {"list": []},
        "templating": {"list": [_variable(variable) for variable in dashboard.variables]},
        "panels": list(_placed(dashboard.rows)),
    }


def _menu() -> dict[str, Any]:
    """All other dashboards, with the choices that they share."""
    return {
        "type": "dashboards",
        "title": "Dashboards",
        "tooltip": "",
        "icon": "external link",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _variable(variable: Variable) -> dict[str, Any]:
    several = not variable.is_one
    query = f"label_values({variable.selector}, {variable.name})"
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.label,
        "datasource": DATA_SOURCE,
        # `qryType` 1 is label_values; Grafana's editor shows it from the same text
        "query": {"qryType": 1, "query": query, "refId": variable.name},
        # when the range of time changes: what ran then
        "refresh": 2,
        # 4: numbers, highest first; 7: names as people sort them
        "sort": 4 if variable.newest_first else 7,
        "multi": several,
        "includeAll": several,
        **({"allValue": variable.all_value} if variable.all_value else {}),
        **({"current": {"text": ["All"], "value": ["$__all"]}} if several else {}),
    }


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Panels from left to right, a new line where one does not fit; each row with a headline."""
    number, top = 0, 0
    for row in rows:
        number += 1
        where = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {"type": "row", "id": number, "title": row.title, "collapsed": False, "panels": [], "gridPos": where}
        left, top, tallest = 0, top + 1, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": panel.height})
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(panel: Panel, number: int, where: Mapping[str, int]) -> dict[str, Any]:
    panel_type, chosen = options(panel)
    defaults = {
        "unit": panel.unit.value,
        "thresholds": threshold_steps(panel.thresholds),
        "links": [{"title": link.title, "url": url(link, OF_A_SERIES)} for link in panel.links],
        **custom(panel),
        **({} if panel.maximum is None else {"min": 0, "max": panel.maximum}),
    }
    in_a_table = (
        {
            "fieldConfig": {"defaults": defaults, "overrides": field_overrides(panel)},
            "transformations": transformations(panel),
        }
        if isinstance(panel, Table)
        else {}
    )
    return {
        "type": panel_type,
        "id": number,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "gridPos": dict(where),
        "interval": SCRAPE_INTERVAL,
        "targets": [_target(query, place, panel) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": chosen,
        **in_a_table,
    }


def _target(query: Query, place: int, panel: Panel) -> dict[str, Any]:
    at_once = is_asked_at_once(panel)
    return {
        "refId": letter(place),
        "datasource": DATA_SOURCE,
        "editorMode": "code",
        "expr": f"{query.expr} or vector(0)" if query.zero else query.expr,
        "instant": at_once,
        "range": not at_once,
        "format": "table" if isinstance(panel, Table) else "time_series",
        "legendFormat": query.legend or "__auto",
    }
