"""A site's settings of alerts, on their way into the files of Prometheus and Alertmanager."""

from __future__ import annotations

from dataclasses import replace

import yaml

from deepopsctl.monitoring import alert_rules, prometheus_server
from deepopsctl.monitoring.alert_drain import rule_files
from tests.unit.monitoring.test_prometheus_server import HOST, SETTINGS, file_of

HOOK = {"hook": {"webhook": {"secret": "hook"}}}


def test_what_a_site_changes_of_an_alert_is_in_prometheus_rules() -> None:
    machine = replace(HOST, settings={**SETTINGS, "alerts": {"DiskFull": {"for": "15m"}}})

    text = file_of(prometheus_server.prometheus(machine, "", rule_files()), "rules/alerts-storage.yml").content
    assert next(alert for alert in alert_rules.read(text) if alert.name == "DiskFull").wait == "15m"


def test_an_alert_that_does_not_exist_is_refused() -> None:
    machine = replace(HOST, settings={**SETTINGS, "alerts": {"DiskFul": {"for": "15m"}}})

    (problem,) = prometheus_server.prometheus(machine, "", rule_files()).problems
    assert problem == "monitoring_alerts: DiskFul: there is no such alert; did you mean DiskFull?"


def test_receivers_and_their_secrets_are_in_alertmanagers_file_which_is_a_secret() -> None:
    settings = {**SETTINGS, "alert_receivers": HOOK, "alert_grouping": {"wait": "1s"}}
    machine = replace(HOST, settings=settings, secrets={**HOST.secrets, "hook": "https://hooks.example.com/x"})

    config = file_of(prometheus_server.alertmanager(machine), "alertmanager.yml")
    document = yaml.safe_load(config.content)
    assert config.secret
    assert document["receivers"][1]["webhook_configs"][0]["url"] == "https://hooks.example.com/x"
    assert document["route"]["group_wait"] == "1s"


def test_a_receiver_without_its_secret_and_settings_of_the_wrong_kind_are_refused() -> None:
    found = prometheus_server.alertmanager(replace(HOST, settings={**SETTINGS, "alert_receivers": HOOK})).problems
    odd = prometheus_server.alertmanager(
        replace(HOST, settings={**SETTINGS, "alert_receivers": ["a"], "alert_routes": "b"})
    ).problems

    assert len(found) == 1
    assert "the vault has no secret hook" in found[0]
    assert len(odd) == 2
