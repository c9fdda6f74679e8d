"""Settings of monitoring that can't work on a node are refused in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.monitoring.problems import problems

SETTINGS: dict[str, object] = {
    "exporter_tls": True,
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
    controller="ctl1",
    settings=SETTINGS,
    secrets={"authority": "x"},
)


def with_settings(**more: object) -> MonitoredNode:
    return replace(CTL1, settings={**SETTINGS, **more})


def test_settings_that_work_are_no_problem() -> None:
    assert problems(with_settings(logs=True, cpu_details=["cpufreq", "softnet"])) == []


@pytest.mark.parametrize("wanted", [["cpufreq", "cpu"], "cpu", None])
def test_details_of_cpus_that_there_are_not_are_refused_by_name(wanted: object) -> None:
    (problem,) = problems(with_settings(cpu_details=wanted))

    assert problem.startswith("monitoring_cpu_details: there is no ")
    assert "cpufreq, guest, schedstat, softnet" in problem


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"private_data": "accounts,Jobs", "drain": False}, "PrivateData in slurm_config has jobs"),
        ({"drain": True}, "monitoring_drain needs to know"),
        ({"private_data": "accounts,usage", "drain": False}, ""),
    ],
)
def test_what_needs_tls_is_refused_without(more: dict[str, object], message: str) -> None:
    result = problems(with_settings(exporter_tls=False, **more))

    assert [problem.startswith(message) for problem in result] == ([True] if message else [])
    assert problems(with_settings(**more)) == []


@pytest.mark.parametrize(("switch", "other"), [("exporter_tls", "logs"), ("logs", "exporter_tls")])
def test_a_vault_without_an_authority_is_a_problem_with_what_to_do(switch: str, other: str) -> None:
    (problem,) = problems(replace(with_settings(drain=False, **{switch: True, other: False}), secrets={}))

    assert "cluster_authority" in problem
    assert "`deepopsctl inventory`" in problem


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"drain_limit": -1}, "monitoring_drain_limit: -1 is not a whole number"),
        ({"drain_limit": "2"}, "monitoring_drain_limit: 2 is not a whole number"),
        ({"drain_interval": 0}, "monitoring_drain_interval: 0 is not a whole number"),
        # SlurmMetricsMissing needs ten minutes to be reported
        ({"drain_resume_after": 600}, "set 660 or more"),
        ({"alerts": {"NodeDown": {"for": "1h"}}}, "set 3660 or more"),
    ],
)
def test_settings_that_would_resume_for_missing_data_are_refused(more: dict[str, object], message: str) -> None:
    result = problems(with_settings(**more))

    assert len(result) == 1
    assert message in result[0]
    # the program runs on the first controller alone
    assert problems(replace(with_settings(**more), name="ctl2")) == []
