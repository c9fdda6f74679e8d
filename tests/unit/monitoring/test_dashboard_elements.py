"""Panels of large clusters show the highest or the lowest few of their series."""

from __future__ import annotations

import pytest

from deepopsctl.monitoring.dashboards import DASHBOARDS
from deepopsctl.monitoring.dashboards.elements import HIGHEST, LOWEST, MOST, highest, lowest
from deepopsctl.monitoring.dashboards.model import BarGauge, Panel, StateTimeline, TimeSeries

PANELS = [panel for dashboard in DASHBOARDS for row in dashboard.rows for panel in row.panels]
# a line for each node, GPU or file system; a job has few of them
LINES = [
    panel
    for panel in PANELS
    if isinstance(panel, TimeSeries | StateTimeline | BarGauge)
    and any("{{node}}" in query.legend and "$node" in query.expr for query in panel.queries)
]


def test_the_mean_of_all_the_time_shown_says_which_are_highest() -> None:
    assert highest('max by (node) (a:b{node=~"$node"}) / c{}') == (
        '(max by (node) (a:b{node=~"$node"}) / c{}) and topk('
        f'{MOST}, max by (node) (avg_over_time(a:b{{node=~"$node"}}[$__range] @ end())) '
        "/ avg_over_time(c{}[$__range] @ end()))"
    )


def test_a_rate_is_taken_of_all_the_time_shown() -> None:
    found = lowest("sum by (node) (rate(x{}[$__rate_interval]))")

    assert found.endswith(f"and bottomk({MOST}, sum by (node) (rate(x{{}}[$__range] @ end())))")


@pytest.mark.parametrize("panel", LINES, ids=lambda panel: panel.title)
def test_no_panel_draws_a_line_for_each_of_a_thousand_nodes(panel: Panel) -> None:
    assert all("topk(" in query.expr or "bottomk(" in query.expr for query in panel.queries)
    assert panel.description.endswith((HIGHEST, LOWEST))


def test_there_are_such_panels() -> None:
    assert len(LINES) > 15
