"""Dashboards are what Grafana can read, and every query in them is one that Prometheus can read."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from deepopsctl.monitoring.dashboards import DASHBOARDS
from deepopsctl.monitoring.dashboards.model import Dashboard, Link, Needs, Panel, Stat, Table, TimeSeries
from deepopsctl.monitoring.dashboards.nodes import FULLEST
from deepopsctl.monitoring.dashboards.render import DATA_SOURCE, render, text
from deepopsctl.monitoring.dashboards.storage import USED
from deepopsctl.monitoring.queries import UnknownVariableError, fill, for_cluster
from tests.support.paths import ROOT

SCHEMA = json.loads(Path(__file__).with_name("grafana-schema.json").read_text(encoding="utf-8"))
BY_UID = {dashboard.uid: dashboard for dashboard in DASHBOARDS}
# Grafana publishes a query's type only with its front end (AGPL): these are the keys that we write
TARGET = {
    "type": "object",
    "additionalProperties": False,
    "required": ["refId", "datasource", "expr"],
    "properties": {
        "refId": {"pattern": "^[A-Z]$"},
        "datasource": {"const": DATA_SOURCE},
        "editorMode": {"enum": ["code", "builder"]},
        "expr": {"type": "string", "minLength": 2},
        "instant": {"type": "boolean"},
        "range": {"type": "boolean"},
        "format": {"enum": ["time_series", "table", "heatmap"]},
        "legendFormat": {"type": "string"},
    },
}
COLOURS = {"green", "orange", "red", "blue", "text"}

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)


def panels(dashboard: Dashboard) -> Iterator[Panel]:
    for row in dashboard.rows:
        yield from row.panels


def schema_errors(schema_name: str, document: Any) -> list[str]:
    """The errors of a document by one of Grafana's schemas."""
    schema = TARGET if schema_name == "target" else SCHEMA["types"].get(schema_name, {"const": {}})
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(document)]


def dashboard_errors(document: dict[str, Any]) -> list[str]:
    """All that is wrong with a rendered dashboard."""
    errors = schema_errors("dashboard", document)
    for panel in document["panels"]:
        if panel["type"] != "row":
            panel_type = panel["type"].replace("-", "")
            where = f"{panel['title']}: "
            errors += [where + error for error in schema_errors(f"{panel_type}.options", panel["options"])]
            custom = panel["fieldConfig"]["defaults"].get("custom", {})
            errors += [where + error for error in schema_errors(f"{panel_type}.custom", custom)]
            errors += [where + error for target in panel["targets"] for error in schema_errors("target", target)]
    return errors


@each_dashboard
def test_dashboards_are_valid_by_grafanas_own_schema(dashboard: Dashboard) -> None:
    assert dashboard_errors(render(dashboard)) == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("panels", 1, "gridpos"), {}),
        (("panels", 1, "options", "graphMode"), "mountain"),
        (("panels", 1, "options", "legendary"), True),
        (("panels", 1, "fieldConfig", "defaults", "thresholds", "mode"), "roughly"),
        (("panels", 1, "targets", 0, "query"), "up"),
        (("templating", "list", 0, "sort"), 9),
        (("schemaVersion",), "39"),
    ],
)
def test_grafanas_own_schema_does_find_what_is_wrong(where: tuple[Any, ...], value: Any) -> None:
    document = render(BY_UID["deepops-overview"])
    *path, last = where
    inner: Any = document
    for step in path:
        inner = inner[step]
    inner[last] = value

    assert dashboard_errors(document) != []


def test_addresses_of_dashboards_never_change() -> None:
    # people save them as bookmarks, and write them into tickets
    assert [dashboard.uid for dashboard in DASHBOARDS] == [
        "deepops-overview",
        "deepops-nodes",
        "deepops-gpus",
        "deepops-queue",
        "deepops-jobs",
        "deepops-storage",
        "deepops-users",
        "deepops-alerts",
    ]


@each_dashboard
def test_a_dashboard_is_written_the_same_each_time(dashboard: Dashboard) -> None:
    assert text(dashboard) == text(dashboard)
    assert json.loads(text(dashboard)) == render(dashboard)


@each_dashboard
def test_panels_have_unique_names_and_describe_what_they_show(dashboard: Dashboard) -> None:
    titles = [(row.title, panel.title) for row in dashboard.rows for panel in row.panels]

    assert len(set(titles)) == len(titles)
    assert all(panel.description.endswith(".") and panel.queries for panel in panels(dashboard))


@each_dashboard
def test_panels_do_not_overlap_and_fill_the_page(dashboard: Dashboard) -> None:
    cells = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + line)
        for panel in render(dashboard)["panels"]
        for column in range(panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["h"])
    ]

    assert len(set(cells)) == len(cells)
    assert {column for column, _line in cells} == set(range(24))


@each_dashboard
def test_numbers_of_panels_are_unique(dashboard: Dashboard) -> None:
    numbers = [panel["id"] for panel in render(dashboard)["panels"]]

    assert len(set(numbers)) == len(numbers)


def links(dashboard: Dashboard) -> Iterator[tuple[Panel, Link]]:
    for panel in panels(dashboard):
        yield from ((panel, link) for link in panel.links)
        if isinstance(panel, Table):
            yield from ((panel, column.link) for column in panel.columns if column.link)


@each_dashboard
def test_links_lead_to_a_dashboard_that_has_the_variable(dashboard: Dashboard) -> None:
    for panel, link in links(dashboard):
        names = {variable.name for variable in BY_UID[link.dashboard].variables}
        assert set(link.variables) <= names, panel.title


@each_dashboard
def test_a_links_label_is_one_that_the_panel_shows(dashboard: Dashboard) -> None:
    for panel, link in links(dashboard):
        for label in link.variables.values():
            if isinstance(panel, Table):
                titles = [column.title for column in panel.columns if column.source == label]
                assert len(titles) == 1, panel.title
                # others have to be set in Grafana in another way
                assert re.fullmatch(r"\w+", titles[0]), panel.title
            else:
                assert all(f"{{{{{label}}}}}" in query.legend for query in panel.queries), panel.title


def test_nodes_jobs_and_users_are_linked_with_each_other() -> None:
    ways = {(dashboard.uid, link.dashboard) for dashboard in DASHBOARDS for _panel, link in links(dashboard)}

    assert {
        ("deepops-gpus", "deepops-jobs"),
        ("deepops-gpus", "deepops-nodes"),
        ("deepops-nodes", "deepops-gpus"),
        ("deepops-users", "deepops-jobs"),
        ("deepops-jobs", "deepops-users"),
        ("deepops-jobs", "deepops-nodes"),
        ("deepops-alerts", "deepops-nodes"),
    } <= ways


@each_dashboard
def test_the_columns_of_a_table_are_labels_that_its_queries_return(dashboard: Dashboard) -> None:
    for panel in panels(dashboard):
        if isinstance(panel, Table):
            titles = [column.title for column in panel.columns]
            places = [column.source for column in panel.columns if isinstance(column.source, int)]
            assert len(set(titles)) == len(titles)
            assert set(places) <= set(range(len(panel.queries)))
            assert panel.sort_by in ("", *titles)


@each_dashboard
def test_lines_and_states_have_names(dashboard: Dashboard) -> None:
    for panel in panels(dashboard):
        if not isinstance(panel, Stat | Table):
            assert all(query.legend for query in panel.queries), panel.title


def test_equal_titles_have_equal_units_everywhere() -> None:
    units: dict[str, set[str]] = {}
    for dashboard in DASHBOARDS:
        for panel in panels(dashboard):
            if isinstance(panel, TimeSeries):
                units.setdefault(panel.title, set()).add(panel.unit)

    assert {title: title_units for title, title_units in units.items() if len(title_units) > 1} == {}


def test_the_reference_names_every_dashboard() -> None:
    reference = (ROOT / "docs" / "reference" / "dashboards.md").read_text(encoding="utf-8")

    for dashboard in DASHBOARDS:
        choices = ", ".join(variable.label.lower() for variable in dashboard.variables)
        assert f"| {dashboard.title} | `/d/{dashboard.uid}` | {choices} |" in reference


def test_a_variable_that_a_dashboard_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownVariableError, match=r"no variable \$node"):
        fill('up{node=~"$node"}', {"cluster": "hpc"})


def refused_by_promtool(tmp_path: Path, queries: list[str]) -> str:
    """promtool's errors for these queries, each in a recording rule; nothing where it can read them."""
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    # JSON is YAML
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    argv = ["promtool", "check", "rules", str(tmp_path / "queries.yml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    every = [asked.text for asked in for_cluster("hpc-1", set(Needs))]

    assert len(every) > 150
    assert refused_by_promtool(tmp_path, every) == ""


def test_what_prometheus_can_not_read_is_reported(tmp_path: Path) -> None:
    assert "unclosed left parenthesis" in refused_by_promtool(tmp_path, ['sum(up{cluster=~"hpc"}'])


@pytest.mark.parametrize("expr", [FULLEST, f"max by (node) ({USED})"], ids=["nodes", "storage"])
def test_the_fullest_file_system_is_one_that_can_be_written_to(expr: str, tmp_path: Path) -> None:
    mounts = {"/": ("ext4", 30, 0), "/cvmfs": ("fuse", 0, 1)}
    values = {
        f'node_filesystem_{name}{{node="n1",mountpoint="{mount}",fstype="{fstype}"}}': value
        for mount, (fstype, free, readonly) in mounts.items()
        for name, value in (("avail_bytes", free), ("size_bytes", 100), ("readonly", readonly))
    }
    asked = {
        "expr": re.sub(r"\$\w+", ".*", expr),
        "eval_time": "1m",
        "exp_samples": [{"labels": '{node="n1"}', "value": 0.7}],
    }
    series = [{"series": name, "values": f"{value}x2"} for name, value in values.items()]
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}]}))

    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
