"""HPC Challenge: the input that it gets, and what its summary means."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs._slurm_jobs.session import Outcome
from deepopsctl.node_programs.suites.validate_hpc import hpcc, main

LINES = {
    "VersionMajor": "1", "CommWorldProcs": "2", "HPL_Tflops": "0.0123", "HPL_N": "1024", "StarSTREAM_Triad": "4.5",
    "MPIFFT_Gflops": "1.25", "PTRANS_GBs": "0.8", "Success": "1",
}  # fmt: skip


def output(node: str = "cn01", **changed: str) -> str:
    lines = (f"DEEPOPS-HPCC {node} {key}={text}" for key, text in {**LINES, **changed}.items())
    return "\n".join(["welcome", f"DEEPOPS-HPCC {node} Begin of Summary section.", *lines])


def test_a_summary_is_that_of_its_node() -> None:
    both = hpcc.summaries(output() + "\n" + output("cn02", HPL_Tflops="0.02"))

    assert {node: (each.tflops, each.processes, each.good) for node, each in both.items()} == {
        "cn01": (0.0123, 2, True), "cn02": (0.02, 2, True),
    }  # fmt: skip


@pytest.mark.parametrize("changed", [{"Success": "0"}, {"Failed": "1"}])
def test_results_that_hpcc_found_wrong_have_no_rate(changed: dict[str, str]) -> None:
    summary = hpcc.summaries(output(**changed))["cn01"]

    assert not summary.good
    assert main._verdict("hpc-node", "cn01", Outcome("ended", 0, "", ""), summary)["status"] == "fail"


@pytest.mark.parametrize("changed", [{"HPL_Tflops": "nan"}, {"HPL_Tflops": "fast"}, {"CommWorldProcs": "0"}])
def test_what_is_no_summary_is_left_out(changed: dict[str, str]) -> None:
    assert hpcc.summaries(output(**changed)) == {}


def test_rates_are_of_all_cores() -> None:
    summary = hpcc.summaries(output())["cn01"]

    rates = {each["name"]: (round(each["value"], 3), each["unit"]) for each in main._rates("cn01", summary, 0.85)}

    assert rates == {"hpc-hpl": (12.3, "GFLOP/s"), "hpc-stream": (9.0, "GB/s"), "hpc-fft": (1.25, "GFLOP/s")}


@pytest.mark.parametrize(("processes", "shape"), [(1, (1, 1)), (7, (1, 7)), (16, (4, 4)), (24, (4, 6)), (128, (8, 16))])
def test_the_grid_has_all_processes(processes: int, shape: tuple[int, int]) -> None:
    assert hpcc.grid(processes) == shape


def test_the_matrix_takes_the_share_of_the_memory_in_whole_blocks() -> None:
    size = hpcc.matrix_size(32_768, 0.05)

    assert size % hpcc.BLOCK == 0
    assert 0.045 < size**2 * 8 / (32_768 * 2**20) <= 0.05


def test_where_it_is_not_installed_the_setting_is_told() -> None:
    check = main._verdict("hpc-node", "cn01", Outcome("ended", 1, "", "hpcc is not installed\nsrun: error"), None)

    assert (check["status"], "environment_packages_more" in check["message"]) == ("skip", True)
