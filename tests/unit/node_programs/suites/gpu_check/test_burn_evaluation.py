"""What a node's burn-in says about it, on constructed results."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.node_programs.suites.gpu_check.burn.evaluation import evaluate_burn
from tests.data.burn_samples import QUIET, UNKNOWN, burn_result, burnt, rate, watched

NO_DRIVER: dict[str, Any] = {"gpus": [], "problem": "libnvidia-ml.so.1 can't be loaded: no NVIDIA driver here?"}


def evaluated(expected: int = 2, **changes: Any) -> dict[tuple[str, str], dict[str, str]]:
    result = evaluate_burn(burn_result(**changes), expected)
    return {(check["name"], check["target"]): check for check in result}


CPU = burn_result()["cpu"]


def with_rates(rates: list[tuple[float, float]]) -> dict[str, Any]:
    """Cores with these rates in the first and in the last tenth of the time."""
    return {**CPU, "rates": [{"core": core, **rate(*ends)} for core, ends in enumerate(rates)]}


def statuses(result: dict[tuple[str, str], dict[str, str]]) -> set[str]:
    return {check["status"] for check in result.values()}


def test_ten_good_minutes_pass_every_check() -> None:
    result = evaluated()

    assert statuses(result) == {"pass"}
    assert {check["suite"] for check in result.values()} == {"burnin"}
    assert result["burn-gpu", "gpu01/1"]["measured"] == "9000000 MiB verified"


def test_a_load_that_ended_early_passes_nothing_and_says_how_far_it_came() -> None:
    result = evaluated(ended="cancelled or preempted (SIGTERM)", ran_s=40.2)

    assert statuses(result) == {"skip"}
    assert result["burn-completed", "gpu01"]["message"] == ("ended after 40 of 600 s: cancelled or preempted (SIGTERM)")

    # what was wrong before stays a failure
    ill = {"core": 1, "status": "wrong", "message": "hashing, round 7: 00 instead of 41", "where": "cpu"}
    result = evaluated(ended="cancelled or preempted (SIGTERM)", ran_s=40.2, cpu={**CPU, "faults": [ill]})
    assert result["burn-cpu", "gpu01"]["status"] == "fail"
    assert "core 1: hashing, round 7" in result["burn-cpu", "gpu01"]["message"]
    assert statuses(result) == {"fail", "skip"}


@pytest.mark.parametrize(
    ("changes", "name", "status", "says"),
    [
        ({"memory": {"mib": 8, "verified_mib": 4, "faults": [
            {"core": 3, "status": "wrong", "message": "memory: 1 of 4194304 bytes are wrong", "where": "memory"},
        ]}}, "burn-memory", "fail", "gpu01 core 3: memory: 1 of"),
        ({"memory": {"mib": 0, "verified_mib": 0, "faults": []}}, "burn-memory", "skip", "no memory to spare"),
        ({"counters": {**QUIET, "memory_uncorrected": 1}}, "burn-hardware", "fail", "1 uncorrected memory errors"),
        ({"counters": {**QUIET, "memory_corrected": 5}}, "burn-hardware", "warn", "a DIMM grows weak"),
        ({"counters": UNKNOWN}, "burn-hardware", "skip", "no error counter"),
        ({"cpu": with_rates([(10.0, 7.0), (10.0, 7.0)])}, "burn-cpu-rate", "warn", "became slower under load"),
        ({"cpu": with_rates([(10.0, 10.0)] * 5 + [(6.0, 6.0)])}, "burn-cpu-rate", "warn", "cores 5 are"),
        ({"counters": UNKNOWN}, "burn-cpu-heat", "skip", "no counter"),
        ({"counters": {**QUIET, "throttled": 12}}, "burn-cpu-heat", "warn", "throttled 12 times"),
        ({"kernel_log": {"obstacle": "can't be read by a user"}}, "burn-kernel-log", "skip", "by a user"),
        ({"kernel_log": {"lines": ["NVRM: Xid (PCI:0000:1b:00): 79"]}}, "burn-kernel-log", "fail", "Xid"),
    ],
)  # fmt: skip
def test_a_node_s_own_trouble_is_named(changes: dict[str, Any], name: str, status: str, says: str) -> None:
    check = evaluated(**changes)[name, "gpu01"]

    assert (check["status"], says in check["message"]) == (status, True), check


class TestRates:
    @pytest.mark.parametrize(("last", "status"), [(595.0, "pass"), (520.0, "warn"), (400.0, "fail")])
    def test_a_gpu_that_slows_as_it_heats_is_named(self, last: float, status: str) -> None:
        check = evaluated(gpus=[burnt(0), burnt(1, bf16=rate(600.0, last))])["burn-gpu-rate", "gpu01/1"]

        assert check["status"] == status
        assert ("serial 1650000000001" in check["message"]) is (status != "pass")

    def test_the_outlying_gpu_of_a_node_is_named(self) -> None:
        result = evaluated(gpus=[burnt(0), burnt(1), burnt(2, bf16=rate(500.0))], expected=3)

        assert result["burn-gpu-rate", "gpu01/2"]["status"] == "warn"
        assert "an outlier" in result["burn-gpu-rate", "gpu01/2"]["message"]
        assert result["burn-gpu-rate", "gpu01/0"]["status"] == "pass"

    def test_a_short_load_says_nothing_about_heat(self) -> None:
        result = evaluated(asked_s=10.0, ran_s=10.0, gpus=[burnt(0, bf16=rate(600.0, 100.0)), burnt(1)])

        assert result["burn-gpu-rate", "gpu01/0"]["status"] == "skip"
        assert result["burn-cpu-rate", "gpu01"]["status"] == "skip"
        assert result["burn-gpu", "gpu01/0"]["status"] == "pass"


class TestGpus:
    @pytest.mark.parametrize(
        ("changes", "name", "status"),
        [
            ({"status": "wrong", "message": "bf16: 1 of 9 results are wrong"}, "burn-gpu", "fail"),
            ({"status": "error", "message": "the loading process hung"}, "burn-gpu", "fail"),
            ({"watched": watched(lost="the GPU has fallen off the bus")}, "burn-gpu", "fail"),
            ({"rates": {}}, "burn-gpu", "skip"),
            ({"watched": watched(slowdowns={"thermal (hardware)": 0.1})}, "burn-gpu-heat", "fail"),
            ({"watched": watched(slowdowns={"thermal (software)": 0.1})}, "burn-gpu-heat", "warn"),
            ({"watched": watched(temperature=87)}, "burn-gpu-heat", "fail"),
            ({"watched": watched(errors={"corrected": 0, "uncorrected": 1, "remapped": 0})}, "burn-gpu-errors", "fail"),
            ({"watched": watched(errors={"corrected": 4, "uncorrected": 0, "remapped": 0})}, "burn-gpu-errors", "warn"),
            ({"watched": watched(errors={})}, "burn-gpu-errors", "skip"),
        ],
    )
    def test_an_ill_gpu_is_named(self, changes: dict[str, Any], name: str, status: str) -> None:
        check = evaluated(gpus=[burnt(0, **changes), burnt(1)])[name, "gpu01/0"]

        assert check["status"] == status
        assert status == "skip" or "serial 1650000000000" in check["message"]

    def test_a_missing_driver_fails_where_real_gpus_are_expected_and_is_skipped_elsewhere(self) -> None:
        assert evaluated(expected=2, **NO_DRIVER)["burn-gpu", "gpu01"]["status"] == "fail"
        assert evaluated(expected=0, **NO_DRIVER)["burn-gpu", "gpu01"]["status"] == "skip"

        simulated = evaluated(expected=2, **NO_DRIVER, simulated="GPUs of a lab")["burn-gpu", "gpu01"]
        assert (simulated["status"], simulated["message"]) == ("skip", "GPUs of a lab")

    def test_too_few_gpus_fail(self) -> None:
        assert evaluated(expected=8)["burn-gpu", "gpu01"]["message"] == "gpu01 should have 8 GPUs, and has 2"
