"""Every alert is shown to fire and shown to be silent, describes what to do, and is in the reference."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
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


def labels_in(group: Group) -> set[str]:
    return {entry["series"].partition("{")[0] for entry in group["input_series"]}


# read once: PyYAML is slow
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(TESTS.glob("*.yml"))}
GROUPS: list[Group] = [group for text in TEXTS.values() for group in yaml.safe_load(text)["tests"]]


@pytest.mark.parametrize("name", FILES)
def test_promtool_accepts_the_rules(name: str) -> None:
    assert promtool.errors("check", "rules", RULES / name) == ""


@pytest.mark.parametrize("name", TEXTS)
def test_alerts_fire_when_they_should_and_not_when_they_should_not(tmp_path: Path, name: str) -> None:
    document = yaml.safe_load(FILES[name])
    # the other annotations are the same for all alerts of a rule
    for rule in (rule for group in document["groups"] for rule in group["rules"]):
        rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    (tmp_path / name).write_text(yaml.safe_dump(document), encoding="utf-8")
    (tmp_path / f"test-{name}").write_text(TEXTS[name], encoding="utf-8")

    assert promtool.errors("test", "rules", tmp_path / f"test-{name}") == ""


def test_no_alert_is_without_a_test_that_fires_and_one_that_does_not() -> None:
    assert [alert.name for alert in ALERTS if not any(fires(alert, group) for group in GROUPS)] == []
    assert [alert.name for alert in ALERTS if not any(is_silent(alert, group) for group in GROUPS)] == []
    assert set(TEXTS) == set(FILES)


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
