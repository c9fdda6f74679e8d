"""slurmctld's own metrics: where they are switched on, and where Prometheus could not read them."""

from __future__ import annotations

import pytest

from deepopsctl.slurm.native_metrics import refusal, settings


def test_slurm_has_metrics_of_its_own_with_gpus_since_26_05() -> None:
    assert settings((26, 5), wanted=True) == {"MetricsType": "metrics/openmetrics"}
    assert settings((25, 11), wanted=True) == {}
    assert settings((26, 5), wanted=False) == {}


def test_an_older_slurm_is_refused_by_its_release() -> None:
    assert "Slurm 24.11 has no metrics of its own" in refusal((24, 11), {}, wanted=True)
    assert refusal((24, 11), {}, wanted=False) == ""
    # a plan before the packages are there
    assert refusal((0, 0), {}, wanted=True) == ""


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"PrivateData": "none"},
        {"privatedata": None},
        {"PrivateData": ["jobs", "usage"], "MetricsParameters": "ignore_private_data"},
    ],
)
def test_what_is_open_is_read(extra: dict[str, object]) -> None:
    assert refusal((26, 5), extra, wanted=True) == ""


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ({"privatedata": ["jobs", "usage"]}, "PrivateData"),
        ({"PrivateData": "jobs", "MetricsParameters": None}, "PrivateData"),
        ({"MetricsAuthUsers": "prometheus"}, "MetricsAuthUsers"),
        ({"MetricsAuthUsers": "prometheus", "MetricsParameters": "ignore_private_data"}, "MetricsAuthUsers"),
    ],
)
def test_what_a_site_has_closed_is_not_opened(extra: dict[str, object], key: str) -> None:
    assert f"with {key} slurmctld shows its metrics only with a token" in refusal((26, 5), extra, wanted=True)
