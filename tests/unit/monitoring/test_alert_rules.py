"""What a site changes of the alerts, and what it can't."""

from __future__ import annotations

import pytest
import yaml

from deepopsctl.monitoring import alert_rules
from tests.support.paths import ROOT

RULES = ROOT / "roles" / "prometheus" / "files" / "rules"
FILES = {
    name: (RULES / name).read_text(encoding="utf-8")
    for name in ("alerts-nodes.yml", "alerts-storage.yml", "alerts-monitoring.yml")
}


def of(files: dict[str, str], name: str) -> alert_rules.Alert | None:
    return next((alert for text in files.values() for alert in alert_rules.read(text) if alert.name == name), None)


def test_without_changes_the_files_stay_word_for_word() -> None:
    assert alert_rules.with_overrides(FILES, {}) == FILES


def test_with_a_page_each_alert_has_its_address() -> None:
    changed = alert_rules.with_overrides(FILES, {"DiskFull": {"for": "15m"}})

    for files in (FILES, changed):
        made = alert_rules.with_addresses(files, "https://docs.example.com/reference/alerts/")
        for alert in (alert for text in made.values() for alert in alert_rules.read(text)):
            url = alert.annotations["runbook_url"]
            assert url == f"https://docs.example.com/reference/alerts/#{alert.name.lower()}"
        assert alert_rules.with_addresses(files, "") == files
    assert alert_rules.page_problems("") == []
    assert alert_rules.page_problems("docs.example.com: x")


def test_a_change_of_one_alert_leaves_all_others_as_they_are() -> None:
    changed = alert_rules.with_overrides(FILES, {"DiskFull": {"threshold": 0.1, "for": "15m", "severity": "info"}})

    result, before = of(changed, "DiskFull"), of(FILES, "DiskFull")
    assert result
    assert before
    assert (result.threshold, result.wait, result.severity) == (0.1, "15m", "info")
    assert result.expr.rpartition("<")[0] == before.expr.rpartition("<")[0]
    assert changed["alerts-nodes.yml"] == FILES["alerts-nodes.yml"]
    assert [alert for alert in alert_rules.read(changed["alerts-storage.yml"]) if alert != result] == [
        alert for alert in alert_rules.read(FILES["alerts-storage.yml"]) if alert != before
    ]


def test_an_alert_can_be_taken_away_drain_or_ask_something_else() -> None:
    changed = alert_rules.with_overrides(
        FILES,
        {
            "ClockOff": {"enabled": False},
            "MountMissing": {"drain": False},
            "NodeDown": {"drain": True, "expr": "up == 0"},
        },
    )

    mount, node = of(changed, "MountMissing"), of(changed, "NodeDown")
    assert of(changed, "ClockOff") is None
    assert mount
    assert not mount.drains
    assert node
    assert (node.drains, node.blinds, node.expr) == (True, True, "up == 0")


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ("{DiskFul: {for: 5m}}", "there is no such alert; did you mean DiskFull?"),
        ("{DiskFull: {wait: 5m}}", "wait can't be changed; known: enabled, for"),
        ("{DiskFull: {for: 5 minutes}}", "for: 5 minutes is not a valid time"),
        ("{DiskFull: {threshold: ten}}", "threshold: ten is not a valid number"),
        ("{NodeDown: {threshold: 3}}", "it has no threshold"),
        ("{DiskFull: {severity: fatal}}", "severity is one of critical, warning, info, none"),
        ("{DiskFull: {drain: 1}}", "drain is true or false"),
        ("{DiskFull: 5}", "is not a mapping"),
        ("{Watchdog: {enabled: false}}", "it stays"),
        ("[DiskFull]", "monitoring_alerts is not a mapping"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(changes: str, output: str) -> None:
    result = alert_rules.validate_overrides(FILES, yaml.safe_load(changes))

    assert len(result) == 1
    assert output in result[0]


def test_a_threshold_that_would_change_one_of_several_comparisons_alone_is_refused() -> None:
    changes = {"PrometheusStorageFailing": {"threshold": 3}, "PrometheusNotificationsFailing": {"threshold": 3}}

    problems = alert_rules.validate_overrides(FILES, changes)

    assert ["it has no threshold" in problem for problem in problems] == [True, True]


def test_what_makes_sense_is_not_refused() -> None:
    changes = {
        "DiskFull": {"enabled": True, "for": "1h30m", "threshold": 0.2, "severity": "info", "drain": True, "expr": "up"}
    }

    assert alert_rules.validate_overrides(FILES, changes) == []


def test_knows_how_long_nobody_may_notice_that_data_is_missing() -> None:
    assert alert_rules.longest_blindness(FILES) == 300
    assert alert_rules.longest_blindness(alert_rules.with_overrides(FILES, {"NodeDown": {"for": "2h"}})) == 7200
