"""Options of each panel type, the same for all dashboards."""

from __future__ import annotations

from typing import Any

from deepopsctl.monitoring.dashboards.model import BarGauge, Panel, Stat, StateTimeline, Table, TimeSeries

LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def options(panel: Panel) -> tuple[str, dict[str, Any]]:
    """Grafana's name of the panel type, and its options."""
    match panel:
        case TimeSeries():
            return "timeseries", _time_series()
        case Stat():
            return "stat", _stat(panel)
        case BarGauge():
            return "bargauge", _bar_gauge()
        case StateTimeline():
            return "state-timeline", _state_timeline()
        case Table():
            return "table", _table(panel)
    raise TypeError(f"{type(panel).__name__} is not a panel type")


def is_asked_at_once(panel: Panel) -> bool:
    """Whether it shows this moment, not how it came about."""
    return isinstance(panel, Table | BarGauge)


def custom(panel: Panel) -> dict[str, Any]:
    """Field options of a panel type."""
    match panel:
        case TimeSeries():
            return {"color": {"mode": "palette-classic-by-name"}, "custom": _line(stacked=panel.stacked)}
        case StateTimeline():
            states = {str(value): {"text": text, "color": color} for value, (text, color) in panel.states.items()}
            return {
                "color": {"mode": "thresholds"},
                "custom": {"fillOpacity": 70, "lineWidth": 0},
                "mappings": [{"type": "value", "options": states}],
            }
        case Table():
            return {
                "color": {"mode": "thresholds"},
                "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False, "filterable": True},
            }
        case _:
            return {"color": {"mode": "thresholds"}}


def _line(*, stacked: bool) -> dict[str, Any]:
    return {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 40 if stacked else 10,
        "showPoints": "never",
        # a gap in what was measured is a gap in the line
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "axisSoftMin": 0,
    }


def _time_series() -> dict[str, Any]:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _stat(panel: Stat) -> dict[str, Any]:
    return {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": LAST,
        "showPercentChange": False,
        "textMode": "value_and_name" if len(panel.queries) > 1 else "value",
        "wideLayout": True,
    }


def _bar_gauge() -> dict[str, Any]:
    return {
        "displayMode": "basic",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "maxVizHeight": 24,
        "minVizHeight": 10,
        "minVizWidth": 8,
        "namePlacement": "left",
        "orientation": "horizontal",
        "reduceOptions": LAST,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "text",
    }


def _state_timeline() -> dict[str, Any]:
    return {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }


def _table(panel: Table) -> dict[str, Any]:
    return {
        "cellHeight": "sm",
        "frameIndex": 0,
        "showHeader": True,
        "sortBy": [{"displayName": panel.sort_by, "desc": panel.descending}] if panel.sort_by else [],
    }
