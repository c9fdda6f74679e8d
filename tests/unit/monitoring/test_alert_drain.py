"""Where drain by alert is, and what it is told."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from deepopsctl.monitoring import alert_rules
from deepopsctl.monitoring.alert_drain import needs, rule_files
from deepopsctl.monitoring.resources import MonitoredNode
from deepopsctl.node_programs.alert_drain.settings import Settings

SETTINGS: dict[str, object] = {
    "drain": True,
    "drain_limit": 2,
    "drain_resume_after": 900,
    "drain_interval": 30,
    "alerts": {},
}
CTL1 = MonitoredNode(
    "ctl1",
    "hpc",
    frozenset({"slurm_controller"}),
    "192.0.2.1",
    "Debian 13",
    controller="ctl1",
    monitoring_host="mon1",
    monitoring_address="2001:db8::9",
    settings=SETTINGS,
    secrets={"web_password": "geheim"},
)


def with_settings(**more: object) -> MonitoredNode:
    return replace(CTL1, settings={**SETTINGS, **more})


def test_it_is_off_unless_somebody_asks_for_it() -> None:
    assert needs(with_settings(drain=False)).files == ()
    assert needs(replace(CTL1, settings={})).files == ()


def test_it_is_on_the_first_controller_alone() -> None:
    assert needs(CTL1).units[0].name == "deepops-alertdrain.service"
    assert needs(replace(CTL1, name="ctl2")).files == ()


def test_its_settings_are_those_that_the_program_knows_and_a_secret() -> None:
    config = next(file for file in needs(CTL1).files if file.path.endswith("alertdrain.json"))

    told = json.loads(config.content)
    assert config.secret
    assert config.mode == "0600"
    assert set(told) == {field.name for field in fields(Settings)} - {"ca"}
    assert Settings(**told).url == "http://[2001:db8::9]:9093"


def test_its_unit_may_do_next_to_nothing() -> None:
    unit = next(file.content for file in needs(CTL1).files if file.path.endswith(".service"))

    for line in ("CapabilityBoundingSet=", "ProtectSystem=strict", "NoNewPrivileges=yes"):
        assert f"\n{line}\n" in unit
    assert "geheim" not in unit


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"drain_limit": -1}, "monitoring_drain_limit: -1 is no whole number"),
        ({"drain_limit": "2"}, "monitoring_drain_limit: 2 is no whole number"),
        ({"drain_interval": 0}, "monitoring_drain_interval: 0 is no whole number"),
        # SlurmMetricsMissing needs ten minutes to be told
        ({"drain_resume_after": 600}, "set 660 or more"),
        ({"alerts": {"NodeDown": {"for": "1h"}}}, "set 3660 or more"),
    ],
)
def test_settings_that_would_resume_for_missing_data_are_refused(more: dict[str, object], said: str) -> None:
    found = needs(with_settings(**more)).problems

    assert len(found) == 1
    assert said in found[0]


def test_a_site_may_wait_for_less_where_it_is_told_sooner() -> None:
    blind = [alert.name for text in rule_files().values() for alert in alert_rules.read(text) if alert.blinds]
    alerts = {name: {"for": "10s"} for name in blind}

    assert needs(with_settings(alerts=alerts, drain_resume_after=70)).problems == ()
