"""From results to checks. Those of tests/data/gpus are recorded, the others constructed (gpu_check_samples)."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.checks.check import parse_check
from deepopsctl.gpus.models import find_product
from deepopsctl.node_programs.suites.gpu_check.bounds import FIGURES, figures_of, pcie_gb_s
from deepopsctl.node_programs.suites.gpu_check.document import read_results
from deepopsctl.node_programs.suites.gpu_check.evaluation import evaluate
from deepopsctl.node_programs.suites.gpu_check.rates import METRICS
from deepopsctl.node_programs.suites.gpu_check.results import status_of
from tests.data.gpu_check_samples import TESTS, gpu, measured, pairs, result, without_driver
from tests.support.paths import DATA

Checks = list[dict[str, str]]


def named(checks: Checks, name: str, target: str = "gpu01/3") -> dict[str, str]:
    (actual,) = [check for check in checks if check["name"] == name and check["target"] == target]
    return actual


def with_third(**changes: Any) -> Checks:
    """The checks of a node whose GPU 3 is changed."""
    return evaluate([result(gpus=[gpu(index, **(changes if index == 3 else {})) for index in range(8)])])


def rdma(count: int, gb_s: float = 50.0) -> dict[str, Any]:
    """Ports of that rate, and an Ethernet port beside them."""
    ports = [{"name": f"mlx5_{number}:1", "gb_s": gb_s} for number in range(count)]
    return {"rdma": ports, "ethernet": [{"name": "eth0", "gb_s": 1.25}]}


class TestBetweenNodes:
    def evaluated(self, **actual: Any) -> dict[str, str]:
        first = result("gpu01")
        first["group"]["all_reduce_nodes"] = {"nodes": "gpu[01-02]", **actual}
        return named(evaluate([first, result("gpu02")]), "gpu-all-reduce-nodes", "gpu[01-02]")

    def over(self, network: dict[str, Any], gb_s: float, *earlier: float, **changes: Any) -> dict[str, str]:
        """Two nodes with that network."""
        queries = []
        for number, value in enumerate((*earlier, gb_s)):
            node = result("gpu01", network=network, when=f"2026-11-{number + 1:02d}T08:00:00+00:00", **changes)
            points = {"status": "measured", "ranks": 16, "all_reduce": [{"bytes": 2**30, "gb_s": value}]}
            node["group"]["all_reduce_nodes"] = {"nodes": "gpu[01-02]", **points}
            queries.append(node)
        return named(evaluate(queries[-1:], queries[:-1]), "gpu-all-reduce-nodes", "gpu[01-02]")

    def test_the_sums_count_where_nobody_knows_the_network(self) -> None:
        check = self.evaluated(status="measured", ranks=16, all_reduce=[{"bytes": 4096, "gb_s": 38.5}])

        assert (check["status"], check["measured"], check["unit"]) == ("pass", "38.5", "GB/s")
        assert "16 ranks" in check["message"]
        assert "no bound" in check["message"]
        assert self.evaluated(status="wrong", message="rank 3: 1 word")["status"] == "fail"
        assert self.evaluated(status="skip", message="the first node's id did not arrive")["status"] == "skip"

    @pytest.mark.parametrize(("gb_s", "status"), [(380.0, "pass"), (199.0, "warn"), (99.0, "fail")])
    def test_the_ports_of_the_gpus_are_the_measure(self, gb_s: float, status: str) -> None:
        # eight GPUs: two of the ten ports are for storage
        check = self.over(rdma(10), gb_s)

        assert (check["status"], check["expected"]) == (status, "at least 200")
        assert "of the 400 GB/s of 8 RDMA ports of the node" in check["message"]
        assert check["message"].startswith("gpu[01-02]: ") == (status != "pass")
        # slower ports beside fast ones do not count
        ports = rdma(4)
        ports["rdma"].append({"name": "mlx5_9:1", "gb_s": 12.5})
        assert self.over(ports, 190.0)["expected"] == "at least 100"

    def test_without_rdma_the_fastest_ethernet_port_is_the_measure(self) -> None:
        ports = {"rdma": [], "ethernet": [{"name": "eth0", "gb_s": 1.25}, {"name": "eth1", "gb_s": 12.5}]}

        assert [self.over(ports, gb_s)["status"] for gb_s in (4.0, 2.0, 1.0)] == ["pass", "warn", "fail"]
        assert self.over(ports, 4.0)["expected"] == "at least 3.75"

    def test_no_network_makes_nodes_quicker_than_they_are_inside(self) -> None:
        points = {"status": "measured", "ranks": 8, "all_reduce": [{"bytes": 2**30, "gb_s": 20.0}]}
        inside = self.over(rdma(8), 15.0, group={"all_reduce": points})
        alone = self.over(rdma(1), 11.0, gpus=[gpu(0, measured=measured(h2d=12.0))], group={})

        assert "of the 20 GB/s of all-reduce within" in inside["message"]
        assert "of the 12 GB/s of the GPUs' links" in alone["message"]

    def test_the_same_nodes_are_compared_with_their_past(self) -> None:
        check = self.over({}, 40.0, 60.0, 50.0)

        assert check["status"] == "warn"
        assert "down 20% since 2026-11-02" in check["message"]
        assert self.over({}, 49.0, 50.0)["status"] == "pass"


class TestHealthy:
    def test_a_healthy_node_has_no_warning_and_no_failure(self) -> None:
        checks = evaluate([result("gpu01"), result("gpu02")])

        assert {check["status"] for check in checks} == {"pass", "skip"}
        assert status_of(checks) == "pass"
        assert {parse_check(check).suite for check in checks} == {"gpu"}

    def test_what_was_not_measured_is_skipped_and_never_passed(self) -> None:
        skips = {name: {"status": "skip", "message": "no libcuda"} for name in TESTS}
        checks = with_third(measured=skips, load=None)
        names = ("memory-copy", "memory-test", "to-device", "fp32", "bf16", "clocks", "pcie")

        assert {named(checks, f"gpu-{name}")["status"] for name in names} == {"skip"}
        assert named(checks, "gpu-fp32")["message"] == "no libcuda"

    def test_a_node_without_a_driver_is_skipped_and_fails_where_gpus_are_expected(self) -> None:
        assert [check["status"] for check in evaluate([without_driver()])] == ["skip"]
        checks = evaluate([without_driver()], (), {"cpu01": 8})
        assert {check["name"]: check["status"] for check in checks} == {"gpu-driver": "fail", "gpu-count": "fail"}

    def test_a_gpu_that_tells_nothing_gets_no_pass_for_it(self) -> None:
        mute = dict.fromkeys(
            ("ecc", "rows", "pcie", "power", "temperature", "persistence", "mig", "nvlinks", "fabric", "clocks", "load")
        )
        checks = [check for check in with_third(**mute, measured=None) if check["target"] == "gpu01/3"]

        assert {check["name"] for check in checks if check["status"] == "pass"} == {"gpu-opens", "gpu-model"}


ECC = {"mode": {"now": True, "after_reboot": True}, "corrected": 4, "corrected_ever": 4, "uncorrected_ever": 1}
OFF = {"now": False, "after_reboot": False}
FABRIC = {"state": "completed", "status": 0, "faults": []}
ROWS = {"corrected": 0, "uncorrected": 1}
LOAD = {"sm": 1200, "power": 500.0, "temperature": 60, "generation": 5, "width": 16, "slowdowns": [], "samples": 9}
PCIE = {"generation": 1, "width": 16, "max_generation": 5, "max_width": 16, "gpu_generation": 5, "replays": 0}


class TestHealth:
    @pytest.mark.parametrize(
        ("name", "status", "changes", "says"),
        [
            ("gpu-ecc", "fail", {"ecc": {**ECC, "uncorrected": 1}}, "uncorrected memory errors"),
            ("gpu-ecc", "warn", {"ecc": {**ECC, "uncorrected": 0, "mode": OFF}}, "off"),
            ("gpu-ecc", "pass", {"ecc": {**ECC, "uncorrected": 0}}, ""),
            ("gpu-rows", "fail", {"rows": {**ROWS, "pending": False, "failed": True}}, "has to be replaced"),
            ("gpu-rows", "warn", {"rows": {**ROWS, "pending": True, "failed": False}}, "reset it when it is idle"),
            ("gpu-rows", "warn", {"rows": None, "retirement_pending": True}, "reboot when it is idle"),
            ("gpu-pcie", "fail", {"load": {**LOAD, "width": 8}}, "too few lanes"),
            ("gpu-pcie", "fail", {"load": {**LOAD, "generation": 1}}, "stays slow under load"),
            ("gpu-pcie", "warn", {"load": {**LOAD, "generation": 4}, "pcie": {**PCIE, "max_generation": 4}}, "holds"),
            ("gpu-clocks", "fail", {"load": {**LOAD, "slowdowns": ["thermal (hardware)"]}}, "cooling"),
            ("gpu-clocks", "warn", {"load": {**LOAD, "slowdowns": ["thermal (software)"]}}, "held back"),
            ("gpu-clocks", "pass", {"load": {**LOAD, "slowdowns": ["power cap"]}}, "power cap"),
            ("gpu-power", "warn", {"power": {"limit": 500.0, "default_limit": 700.0}}, "nvidia-smi -pl 700"),
            ("gpu-temperature", "fail", {"load": {**LOAD, "temperature": 87}}, "too hot"),
            ("gpu-temperature", "warn", {"load": {**LOAD, "temperature": 84}}, "close to"),
            ("gpu-persistence", "warn", {"persistence": False}, "nvidia-persistenced"),
            ("gpu-mig", "warn", {"mig": {"now": False, "after_reboot": True}}, "next reset"),
            ("gpu-nvlink", "warn", {"nvlinks": [True] * 17 + [False]}, "down: link 17;"),
            ("gpu-nvlink", "warn", {"nvlinks": [False] * 18}, "no NVLink is up"),
            ("gpu-fabric", "fail", {"fabric": {**FABRIC, "state": "in progress"}}, "fabricmanager"),
            ("gpu-fabric", "fail", {"fabric": {**FABRIC, "status": 999}}, "error 999"),
            ("gpu-fabric", "fail", {"fabric": {**FABRIC, "faults": ["unhealthy route"]}}, "trouble"),
            ("gpu-nvlink", "skip", {"name": "NVIDIA H100 PCIe", "nvlinks": [False] * 12}, "no bridge"),
        ],
    )
    def test_what_the_driver_says_is_evaluated(
        self, name: str, status: str, changes: dict[str, Any], says: str
    ) -> None:
        actual = named(with_third(**changes), name)

        assert actual["status"] == status
        assert says in actual["message"]


@pytest.mark.parametrize(("number", "status"), [(8, "pass"), (9, "fail"), (7, "fail"), (None, None)])
def test_a_node_has_as_many_gpus_as_it_should(number: int | None, status: str | None) -> None:
    checks = evaluate([result()], (), {"gpu01": number} if number else {})

    assert {check["name"]: check["status"] for check in checks}.get("gpu-count") == status


def test_a_gpu_that_fell_off_the_bus_fails_and_does_not_count() -> None:
    node = result(gpus=[gpu(0), {"index": 1, "error": "the GPU has fallen off the bus"}])
    checks = evaluate([node], (), {"gpu01": 2})

    assert named(checks, "gpu-opens", "gpu01/1")["status"] == "fail"
    actual = named(checks, "gpu-count", "gpu01")
    assert (actual["status"], actual["message"]) == ("fail", "gpu01 should have 2 GPUs, and has 1")


class TestRates:
    @pytest.mark.parametrize("others", [1, 2, 3])
    def test_a_gpu_is_never_its_own_peer_and_has_others_on_other_nodes(self, others: int) -> None:
        slow = result("gpu03", [gpu(3, measured=measured(copy=2690.0))])
        checks = evaluate([result("gpu01", [gpu(number) for number in range(others)]), slow])

        assert named(checks, "gpu-memory-copy", "gpu03/3")["status"] == "warn"
        assert "of this model (3000): an outlier" in named(checks, "gpu-memory-copy", "gpu03/3")["message"]
        assert named(checks, "gpu-memory-copy", "gpu01/0")["status"] == "pass"

    def test_a_slow_host_link_is_evaluated_by_its_own_slot(self) -> None:
        narrow = gpu(3, pcie={**PCIE, "max_generation": 3}, measured=measured(h2d=12.6))
        actual = named(evaluate([result(gpus=[narrow])]), "gpu-to-device")

        assert actual["status"] == "pass"
        assert "80% of the 15.76 GB/s" in actual["message"]

    @pytest.mark.parametrize("status", ["wrong", "error"])
    def test_wrong_results_and_dead_workers_fail_whatever_the_speed(self, status: str) -> None:
        broken = {**measured(), "fp32": {"status": status, "message": "fp32: 3 of 8 results are wrong"}}
        actual = named(with_third(measured=broken), "gpu-fp32")

        assert actual["status"] == "fail"
        assert "3 of 8 results are wrong" in actual["message"]

    def test_an_unknown_model_warns_once_and_is_compared_with_its_peers(self) -> None:
        new = [gpu(index, name="NVIDIA Z900") for index in range(3)]
        checks = evaluate([result(gpus=[*new, gpu(3, name="NVIDIA Z900", measured=measured(copy=100.0))])])

        assert named(checks, "gpu-model")["status"] == "warn"
        assert named(checks, "gpu-memory-copy")["status"] == "warn"
        assert named(checks, "gpu-memory-copy", "gpu01/0")["status"] == "pass"
        alone = named(evaluate([result(gpus=[gpu(3, name="NVIDIA Z900")])]), "gpu-memory-copy")
        assert (alone["status"], alone["measured"]) == ("skip", "3000")

    def test_a_metric_without_a_bound_is_compared_with_peers_only(self) -> None:
        actual = named(evaluate([result(gpus=[gpu(3, name="NVIDIA B200"), gpu(4, name="NVIDIA B200")])]), "gpu-bf16")

        assert (actual["status"], actual["expected"], actual["message"]) == (
            "pass",
            "",
            "as the other GPU of this model",
        )


class TestRecorded:
    """Against what healthy GPUs really gave."""

    @pytest.mark.parametrize("model", ["h100", "h200"])
    def test_a_healthy_gpu_has_no_finding_and_every_rate_a_bound(self, model: str) -> None:
        checks = evaluate(read_results(DATA / "gpus" / f"{model}.json"))

        assert {check["name"] for check in checks if check["status"] == "skip"} == {
            "gpu-nvlink", "gpu-fabric", "gpu-peers", "gpu-all-reduce",
        }  # fmt: skip
        assert {check["status"] for check in checks} == {"pass", "skip"}
        assert [metric.name for metric in METRICS if not named(checks, metric.name, "gpu01/0")["expected"]] == []

    @pytest.mark.parametrize(("share", "status"), [(0.92, "pass"), (0.85, "warn"), (0.65, "fail")])
    def test_a_slower_one_is_found_alone_and_without_a_past(self, share: float, status: str) -> None:
        (recorded,) = read_results(DATA / "gpus" / "h200.json")
        recorded["gpus"][0]["measured"]["fp32"]["fp32_tflop_s"] *= share

        actual = named(evaluate([recorded]), "gpu-fp32", "gpu01/0")

        assert (actual["status"], actual["expected"]) == (status, "at least 57.51")
        assert "of the 63.9 TFLOP/s that a healthy one gave" in actual["message"]


class TestPast:
    def test_the_newest_earlier_result_counts_and_never_the_result_itself(self) -> None:
        old = result(gpus=[gpu(3, measured=measured(copy=9999.0))], when="2026-10-01T08:00:00+00:00")
        newer = result(gpus=[gpu(3)], when="2026-11-03T08:00:00+00:00")
        now = result(gpus=[gpu(3)])

        actual = named(evaluate([now], [now, newer, old]), "gpu-memory-copy")

        assert actual["status"] == "pass"
        assert "up 0% since 2026-11-03" in actual["message"]


class TestGroup:
    def test_the_gpu_in_all_slow_pairs_is_named(self) -> None:
        listed = [{**pair, "gb_s": 120.0} if 5 in (pair["from"], pair["to"]) else pair for pair in pairs(8)]
        group = {"peers": {"status": "measured", "pairs": listed}}

        actual = named(evaluate([result(group=group)]), "gpu-peers", "gpu01")

        assert actual["status"] == "fail"
        assert "gpu01 GPU 5 (NVIDIA H100 80GB HBM3, serial 1650000000005) is in all of them" in actual["message"]

    def test_without_a_fabric_pairs_are_shown_and_not_evaluated(self) -> None:
        group = {"peers": {"status": "measured", "pairs": pairs(2, 11.0)}}
        gpus = [gpu(number, fabric=None) for number in range(2)]
        actual = named(evaluate([result(gpus=gpus, group=group)]), "gpu-peers", "gpu01")

        assert (actual["status"], actual["expected"]) == ("pass", "arrives unharmed")

    def test_a_slow_all_reduce_is_evaluated_by_the_fabric(self) -> None:
        points = {"status": "measured", "ranks": 8, "all_reduce": [{"bytes": 2**30, "gb_s": 250.0}]}
        actual = named(evaluate([result(group={"all_reduce": points})]), "gpu-all-reduce", "gpu01")

        assert (actual["status"], actual["expected"]) == ("warn", "at least 315")

    def test_a_node_with_another_driver_is_named(self) -> None:
        versions = {"driver": "550.1", "nvml": "12.550.1", "cuda": "12.4"}
        checks = evaluate([result("gpu01"), result("gpu02"), result("gpu03", versions=versions)])

        actual = named(checks, "gpu-driver-agrees", "gpu03")
        assert (actual["status"], actual["expected"]) == ("warn", "580.95.05")
        assert named(checks, "gpu-driver-agrees", "gpu01")["status"] == "pass"
        assert named(checks, "gpu-cuda-agrees", "gpu03")["status"] == "warn"

    def test_a_library_of_another_version_than_the_driver_is_a_warning(self) -> None:
        versions = {"driver": "580.95.05", "nvml": "13.580.126.09", "cuda": "13.0"}

        assert named(evaluate([result(versions=versions)]), "gpu-driver", "gpu01")["status"] == "warn"


class TestBounds:
    def test_every_product_is_one_of_the_model_table_and_there_once(self) -> None:
        assert [row.product for row in FIGURES if find_product(row.product) is None] == []
        assert len({row.product for row in FIGURES}) == len(FIGURES)
        # as an old driver calls it
        assert figures_of("A100-SXM4-40GB") == figures_of("NVIDIA A100-SXM4-40GB") is not None

    def test_a_link_carries_what_its_lanes_do(self) -> None:
        assert pcie_gb_s(4, 16) == pytest.approx(31.5, abs=0.01)
        assert pcie_gb_s(None, 16) == pcie_gb_s(9, 16) == 0
