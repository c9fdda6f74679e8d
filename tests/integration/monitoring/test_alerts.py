"""Every alert is shown to fire and shown to be silent, describes what to do, and is in the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepopsctl.monitoring import alert_rules
from deepopsctl.monitoring.alert_rules import Alert
from tests.integration.monitoring import promtool
from tests.support.paths import ROOT

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
TESTS = Path(__file__).with_name("alerts")
FILES = {path.name: path.read_text(encoding="utf-8") for path in sorted(RULES.glob(alert_rules.FILES))}
ALERTS = [alert for text in FILES.values() for alert in alert_rules.read(text)]
OF_ALL = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
# what is called is a function
METRIC = re.compile(r"\b[a-z][a-z0-9_:]*\b(?!\s*\()")
Group = Mapping[str, Any]
# of a group in which all is well
NONE_FIRES = 'ALERTS{alertstate="firing",alertname!="Watchdog"}'
WORDS = {"and", "or", "unless"}


def failures(directory: Path, name: str, rules: str) -> str:
    """What promtool prints where these rules fail the tests of their file.

    Of their annotations the summary is left: the others are the same for all.
    """
    document = yaml.safe_load(rules)
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    (directory / name).write_text(yaml.safe_dump(document), encoding="utf-8")
    (directory / f"test-{name}").write_text(TEXTS[name], encoding="utf-8")
    return promtool.errors("test", "rules", directory / f"test-{name}")


def groups_of(texts: Iterable[str]) -> list[Group]:
    """Groups of series, each with its tests."""
    return [group for text in texts for group in yaml.safe_load(text)["tests"]]


def fires(alert: Alert, group: Group) -> list[Mapping[str, Any]]:
    """What an alert is expected to send."""
    tests = [test for test in group.get("alert_rule_test", []) if test["alertname"] == alert.name]
    return [expected for test in tests for expected in test["exp_alerts"]]


def is_silent(alert: Alert, group: Group) -> bool:
    """Whether it is expected to send nothing while all that it looks at is there."""
    tested = [test for test in group.get("alert_rule_test", []) if test["alertname"] == alert.name]
    silent = any(not test["exp_alerts"] for test in tested)
    if alert.name not in NONE_FIRES:
        silent |= any(
            (test["expr"], test["exp_samples"]) == (NONE_FIRES, []) for test in group.get("promql_expr_test", [])
        )
    return silent and metrics_of(alert.expr) <= labels_in(group)


def metrics_of(expression: str) -> set[str]:
    """Names of the series that an expression is about."""
    plain = re.sub(r'"(\\.|[^"\\])*"', "", expression)
    plain = re.sub(r"\{[^}]*\}|\b(by|on) \([^)]*\)|\[[^]]*\]|\boffset \w+", " ", plain)
    return {name for name in METRIC.findall(plain) if name not in WORDS}


def untested(alerts: list[Alert], groups: Iterable[Group]) -> list[str]:
    """What is missing: a sentence for each alert that is not shown to fire, or not to be silent where all is well."""
    missing, groups = [], list(groups)
    for alert in alerts:
        if not any(fires(alert, group) for group in groups):
            missing.append(f"{alert.name} is not shown to fire")
        if not any(is_silent(alert, group) for group in groups):
            missing.append(f"{alert.name} is not shown to be silent while all that it looks at is there")
    return missing


def labels_in(group: Group) -> set[str]:
    return {entry["series"].partition("{")[0] for entry in group["input_series"]}


# read once: PyYAML is slow
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(TESTS.glob("*.yml"))}
GROUPS = groups_of(TEXTS.values())


@pytest.mark.parametrize("name", FILES)
def test_promtool_accepts_the_rules(name: str) -> None:
    assert promtool.errors("check", "rules", RULES / name) == ""


@pytest.mark.parametrize("name", TEXTS)
def test_alerts_fire_when_they_should_and_not_when_they_should_not(tmp_path: Path, name: str) -> None:
    assert failures(tmp_path, name, FILES[name]) == ""


def test_no_alert_is_without_a_test_that_fires_and_one_that_does_not() -> None:
    assert untested(ALERTS, GROUPS) == []
    assert set(TEXTS) == set(FILES)


def test_an_alert_without_tests_is_named() -> None:
    new = alert_rules.read(
        "groups: [{name: x, rules: [{alert: NewOne, expr: 'metric > 3', for: 1m, labels: {severity: info}}]}]"
    )
    half = (
        "tests: [{input_series: [{series: 'other{a=1}'}], alert_rule_test: [{alertname: NewOne, exp_alerts: []}]},"
        " {input_series: [], alert_rule_test: [{alertname: NewOne, exp_alerts: [{}]}]}]"
    )

    assert untested(new, GROUPS) == [
        "NewOne is not shown to fire",
        "NewOne is not shown to be silent while all that it looks at is there",
    ]
    assert untested(new, groups_of([half])) == ["NewOne is not shown to be silent while all that it looks at is there"]


def test_a_rule_that_does_something_else_fails_its_tests(tmp_path: Path) -> None:
    changed = alert_rules.with_overrides(FILES, {"DiskFull": {"threshold": 0.03}})

    assert "alertname: DiskFull" in failures(tmp_path, "alerts-storage.yml", changed["alerts-storage.yml"])


def test_what_is_shared_is_the_same_for_all_alerts_of_file_systems() -> None:
    patterns = re.findall(r'fstype[=!]~"(.*?)"', FILES["alerts-storage.yml"])

    assert len(patterns) >= 7
    assert len({each.removeprefix("tmpfs|ramfs|") for each in patterns}) == 1


@OF_ALL
def test_an_alert_describes_what_it_means_and_what_to_do(alert: Alert) -> None:
    annotations = alert.annotations

    assert set(annotations) == {"summary", "description", "action", "runbook"}
    assert alert.severity in alert_rules.SEVERITIES
    assert annotations["runbook"] == f"{alert_rules.RUNBOOK}#{alert.name.lower()}"
    # the reference has these two as they are
    assert "{{" not in annotations["description"] + annotations["action"]


@OF_ALL
def test_an_alert_that_drains_knows_its_node(alert: Alert) -> None:
    if alert.drains:
        assert all("node" in each["exp_labels"] for group in GROUPS for each in fires(alert, group))


def test_alerts_have_names_of_their_own() -> None:
    names = [alert.name for alert in ALERTS]

    assert len(names) == len(set(names)) >= 40


def test_the_reference_matches_the_rules() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "alert-reference"), "--check"], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
