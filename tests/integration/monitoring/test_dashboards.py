"""Dashboards are what Grafana can read, and every query in them is one that Prometheus can read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from deepopsctl.monitoring.queries import (
    Needs,
    UnknownVariableError,
    dashboards,
    fill,
    for_cluster,
    may_be_empty,
    panels,
    variables,
)
from tests.integration.monitoring import promtool
from tests.support.paths import ROOT

FILES = ROOT / "roles" / "grafana" / "files" / "dashboards"
# writes each dashboard again in the form that is kept: after an export from Grafana
WRITE = bool(os.environ.get("DEEPOPSCTL_WRITE_GOLDEN"))
DEFINITIONS = json.loads(Path(__file__).with_name("grafana-schema.json").read_text(encoding="utf-8"))["definitions"]
DATA_SOURCE = {"type": "prometheus", "uid": "deepops-prometheus"}
DASHBOARDS = dashboards()
BY_UID = {dashboard["uid"]: dashboard for dashboard in DASHBOARDS}
# a panel of several: the highest or lowest of their series
MOST = 50
HIGHEST = f"Of more than {MOST}, those that are highest on average."
LOWEST = f"Of more than {MOST}, those that are lowest on average."
# what Grafana adds to an export
OF_ONE_GRAFANA = ("id", "version", "iteration", "weekStart", "fiscalYearStartMonth", "liveNow", "preload")

Json = Mapping[str, Any]

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


each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: str(dashboard["uid"]))


def kept(text: str) -> str:
    """A dashboard as it is kept here: the same for the same dashboard, so that a diff shows what was changed."""
    document = {key: value for key, value in json.loads(text).items() if key not in OF_ONE_GRAFANA}
    document["editable"] = False
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def schema_errors(schema_name: str, document: Any) -> list[str]:
    """The errors of a document by one of Grafana's schemas."""
    known = {"target": TARGET, **DEFINITIONS}
    # what Grafana has no type of is empty
    schema = {"$ref": f"#/definitions/{schema_name}", "definitions": known} if schema_name in known else {"const": {}}
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(document)]


def dashboard_errors(document: Json) -> list[str]:
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
def test_dashboards_are_valid_by_grafanas_own_schema(dashboard: Json) -> None:
    assert dashboard_errors(dashboard) == []


def test_addresses_of_dashboards_never_change() -> None:
    # people save them as bookmarks, and write them into tickets
    assert sorted(BY_UID) == [
        "deepops-alerts",
        "deepops-gpus",
        "deepops-jobs",
        "deepops-nodes",
        "deepops-overview",
        "deepops-queue",
        "deepops-storage",
        "deepops-users",
    ]


@pytest.mark.parametrize("path", sorted(FILES.glob("*.json")), ids=lambda path: path.stem)
def test_a_dashboard_is_kept_in_one_form_in_the_file_of_its_uid(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if WRITE:
        path.write_text(text := kept(text), encoding="utf-8")

    assert text == kept(text), "exported from Grafana? DEEPOPSCTL_WRITE_GOLDEN=1 pytest writes it in the form kept here"
    assert json.loads(text)["uid"] == path.stem


@each_dashboard
def test_every_panel_and_variable_asks_the_data_source_that_the_role_configures(dashboard: Json) -> None:
    template = (ROOT / "roles" / "grafana" / "templates" / "datasources.yaml.j2").read_text(encoding="utf-8")
    sources = [
        *panels(dashboard),
        *variables(dashboard),
        *(query for panel in panels(dashboard) for query in panel["targets"]),
    ]

    assert [each["datasource"] for each in sources if each["datasource"] != DATA_SOURCE] == []
    assert f"uid: {DATA_SOURCE['uid']}," in template


@each_dashboard
def test_panels_have_unique_names_in_their_row_and_describe_what_they_show(dashboard: Json) -> None:
    titles, row = [], ""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            titles.append((row, panel["title"]))

    assert len(set(titles)) == len(titles)
    assert all(panel["description"].endswith(".") and panel["targets"] for panel in panels(dashboard))


@each_dashboard
def test_panels_do_not_overlap_and_fill_the_page(dashboard: Json) -> None:
    cells = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + line)
        for panel in dashboard["panels"]
        for column in range(panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["h"])
    ]

    assert len(set(cells)) == len(cells)
    assert {column for column, _line in cells} == set(range(24))


def test_what_may_be_empty_is_a_panel_or_a_variable_of_its_dashboard() -> None:
    assert set(may_be_empty()) == set(BY_UID)
    for uid, titles in may_be_empty().items():
        letters = {panel["title"]: {query["refId"] for query in panel["targets"]} for panel in panels(BY_UID[uid])}
        letters |= {f"variable {variable['name']}": set() for variable in variables(BY_UID[uid])}
        assert not set(titles) - set(letters)
        for title, needs in titles.items():
            assert set(needs.values() if isinstance(needs, dict) else [needs]) <= {str(each) for each in Needs}
            assert not isinstance(needs, dict) or set(needs) <= letters[title], title


def links(dashboard: Json) -> Iterator[tuple[Json, str, dict[str, str]]]:
    """The panel, the dashboard that a link of it leads to, and the field that each variable is set from."""
    for panel in panels(dashboard):
        fields = panel["fieldConfig"]
        properties = [each for override in fields["overrides"] for each in override["properties"]]
        in_columns = [link for each in properties if each["id"] == "links" for link in each["value"]]
        for link in [*fields["defaults"].get("links", []), *in_columns]:
            uid, _, query = link["url"].removeprefix("/d/").partition("?")
            assert query.endswith("${cluster:queryparam}&${__url_time_range}"), panel["title"]
            chosen = re.findall(r"var-(\w+)=\$\{__(?:field\.labels|data\.fields)\.([^}]+)\}", query)
            assert len(chosen) == query.count("var-"), panel["title"]
            yield panel, uid, dict(chosen)


def columns(panel: Json) -> dict[str, str]:
    """The titles of a table's columns: by the label, or the query's values, that stand in each."""
    (organized,) = (each["options"] for each in panel["transformations"] if each["id"] == "organize")
    renamed: dict[str, str] = organized["renameByName"]
    return renamed


@each_dashboard
def test_a_link_sets_a_variable_of_its_dashboard_from_what_the_panel_shows(dashboard: Json) -> None:
    for panel, uid, chosen in links(dashboard):
        assert set(chosen) <= {variable["name"] for variable in variables(BY_UID[uid])}, panel["title"]
        for field in chosen.values():
            if panel["type"] == "table":
                # a title of several words has to be set in Grafana in another way
                assert re.fullmatch(r"\w+", field), panel["title"]
                assert list(columns(panel).values()).count(field) == 1, panel["title"]
            else:
                assert all(f"{{{{{field}}}}}" in query["legendFormat"] for query in panel["targets"]), panel["title"]


def test_nodes_jobs_and_users_are_linked_with_each_other() -> None:
    ways = {(dashboard["uid"], uid) for dashboard in DASHBOARDS for _panel, uid, _chosen in links(dashboard)}

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
def test_the_columns_of_a_table_are_those_that_its_queries_return(dashboard: Json) -> None:
    for panel in panels(dashboard):
        if panel["type"] == "table":
            renamed = columns(panel)
            letters = {query["refId"] for query in panel["targets"]}
            values = {f"Value #{letter}" for letter in letters} if len(letters) > 1 else {"Value"}
            assert len(set(renamed.values())) == len(renamed)
            assert {name for name in renamed if name.startswith("Value")} <= values, panel["title"]
            assert {each["displayName"] for each in panel["options"]["sortBy"]} <= set(renamed.values()), panel["title"]


@each_dashboard
def test_lines_and_states_have_names(dashboard: Json) -> None:
    for panel in panels(dashboard):
        if panel["type"] not in ("stat", "table"):
            assert all(query["legendFormat"] != "__auto" for query in panel["targets"]), panel["title"]


def test_equal_titles_have_equal_units_everywhere() -> None:
    units: dict[str, set[str]] = {}
    for dashboard in DASHBOARDS:
        for panel in panels(dashboard):
            if panel["type"] == "timeseries":
                units.setdefault(panel["title"], set()).add(panel["fieldConfig"]["defaults"]["unit"])

    assert {title: title_units for title, title_units in units.items() if len(title_units) > 1} == {}


# a line for each node, GPU or file system; a job has few of them
LINES = [
    panel
    for dashboard in DASHBOARDS
    for panel in panels(dashboard)
    if panel["type"] in ("timeseries", "state-timeline", "bargauge")
    and any("{{node}}" in query["legendFormat"] and "$node" in query["expr"] for query in panel["targets"])
]


@pytest.mark.parametrize("panel", LINES, ids=lambda panel: str(panel["title"]))
def test_no_panel_draws_a_line_for_each_of_a_thousand_nodes(panel: Json) -> None:
    limited = re.compile(rf"\) and (top|bottom)k\({MOST}, .*\[\$__range\] @ end\(\)")

    assert all(limited.search(query["expr"]) for query in panel["targets"])
    assert panel["description"].endswith((HIGHEST, LOWEST))


def test_the_reference_names_every_dashboard() -> None:
    reference = (ROOT / "docs" / "reference" / "dashboards.md").read_text(encoding="utf-8")

    for dashboard in DASHBOARDS:
        choices = ", ".join(variable["label"].lower() for variable in variables(dashboard))
        assert f"| {dashboard['title']} | `/d/{dashboard['uid']}` | {choices} |" in reference


def test_a_variable_that_a_dashboard_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownVariableError, match=r"no variable \$node"):
        fill('up{node=~"$node"}', {"cluster": "hpc"})


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    every = [asked.text for asked in for_cluster("hpc-1", set(Needs))]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(every)]
    # JSON is YAML
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))

    assert len(every) > 150
    assert promtool.errors("check", "rules", tmp_path / "queries.yml") == ""


@pytest.mark.parametrize(
    ("uid", "title", "letter"), [("deepops-nodes", "Nodes", "F"), ("deepops-storage", "File systems", "B")]
)
def test_the_fullest_file_system_is_one_that_can_be_written_to(
    uid: str, title: str, letter: str, tmp_path: Path
) -> None:
    (panel,) = (panel for panel in panels(BY_UID[uid]) if panel["title"] == title)
    (query,) = (query["expr"] for query in panel["targets"] if query["refId"] == letter)
    expr = f"max by (node) ({query})"
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
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}]

    assert promtool.failures(tmp_path, {"tests": tests}) == ""
