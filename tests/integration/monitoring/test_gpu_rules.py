"""Both GPU exporters' made-up text becomes the same series: every GPU of it, under every name that is promised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.monitoring import promtool
from tests.integration.monitoring.replay import TEXTS
from tests.support.paths import ROOT

COUNTERS = ROOT / "roles" / "monitoring_node" / "files" / "dcgm-counters.csv"
RULES = ROOT / "roles" / "prometheus" / "files" / "rules" / "gpu.yml"
# each of four GPUs; the last is in MIG mode with two instances
OF_EACH_GPU = [
    "gpu:power:watts", "gpu:temperature:celsius", "gpu:sm_clock:hertz", "gpu:xid:last", "gpu:ecc_uncorrected:total",
    "gpu:row_remap_pending:bool", "gpu:recovery_action:code", "gpu:throttled:bool", "gpu:present:bool",
]  # fmt: skip
# DCGM has no memory of a GPU as a whole where it has instances
MEMORY = {"dcgm": ["0", "1", "2", "3.1", "3.2"], "nvitop": ["0", "1", "2", "3", "3.0", "3.1"]}
# NVML has no utilization of instances, nor of a GPU that has some
UTILIZATION = {"dcgm": ["0", "1", "2", "3.1", "3.2"], "nvitop": ["0", "1", "2"]}
# a series, its GPU, its value
SAMPLE = re.compile(r'^(\w+\{.*?\b(?:gpu|index)="([^"]*)".*\}) (\S+)$', re.MULTILINE)
EXPORTERS = pytest.mark.parametrize("exporter", ["dcgm", "nvitop"])


def samples(exporter: str, gpu: str = "", name: str = "") -> dict[str, str]:
    """The value of each series of the made-up text, or of one GPU and one metric."""
    text = (TEXTS / f"{exporter}.prom").read_text(encoding="utf-8")
    return {series: value for series, of, value in SAMPLE.findall(text) if gpu in ("", of) and series.startswith(name)}


def promtool_errors(tmp_path: Path, scraped: dict[str, str], expected: dict[str, dict[str, float]]) -> str:
    """promtool's errors for `{query: {GPU: value}}` after a scrape; nothing where all is as expected."""
    queries = [
        {
            "expr": query,
            "eval_time": "0s",
            "exp_samples": [{"labels": f'{{gpu="{gpu}"}}', "value": value} for gpu, value in values.items()],
        }
        for query, values in expected.items()
    ]
    series = [{"series": name, "values": value} for name, value in scraped.items()]
    tests = [{"input_series": series, "promql_expr_test": queries}]
    return promtool.failures(tmp_path, {"rule_files": [str(RULES)], "tests": tests})


@EXPORTERS
def test_every_gpu_of_the_made_up_text_has_every_metric(exporter: str, tmp_path: Path) -> None:
    expected = {f"count by (gpu) ({name})": dict.fromkeys("0123", 1.0) for name in OF_EACH_GPU}
    expected["sum by (gpu) (gpu:slices:count)"] = {"3": 2.0}
    expected["count by (gpu) (gpu:utilization:ratio)"] = dict.fromkeys(UTILIZATION[exporter], 1.0)
    for name in ("gpu:memory_used:bytes", "gpu:memory_total:bytes"):
        expected[f"count by (gpu) ({name})"] = dict.fromkeys(MEMORY[exporter], 1.0)

    assert promtool_errors(tmp_path, samples(exporter), expected) == ""


@EXPORTERS
def test_every_series_has_labels_for_gpu_and_model(exporter: str, tmp_path: Path) -> None:
    # how many instances a GPU has is a number of its own
    of_one = '__name__=~"gpu:.+", __name__!="gpu:slices:count"'
    nameless = f'count by (gpu) ({{{of_one}, uuid!~"(GPU|MIG)-.+"}} or {{{of_one}, model!~"NVIDIA .+"}})'

    assert promtool_errors(tmp_path, samples(exporter), {nameless: {}}) == ""


@EXPORTERS
def test_ratios_are_ratios_and_bytes_are_bytes(exporter: str, tmp_path: Path) -> None:
    wrong = {
        "count by (gpu) (gpu:utilization:ratio > 1 or gpu:utilization:ratio < 0)": {},
        "count by (gpu) (gpu:memory_used:bytes > gpu:memory_total:bytes)": {},
        "count by (gpu) (gpu:memory_used:bytes < 2^20)": {},
        'max by (gpu) (gpu:memory_total:bytes{gpu="0"})': {"0": 81559 * 2.0**20},
        'count by (gpu) (gpu:sm_clock:hertz{gpu="0"} > 1e9)': {"0": 1.0},
    }

    assert promtool_errors(tmp_path, samples(exporter), wrong) == ""


@EXPORTERS
def test_a_gpu_that_answers_no_more_is_not_present(exporter: str, tmp_path: Path) -> None:
    lost = samples(exporter, gpu="1")
    left = {series: value for series, value in samples(exporter).items() if series not in lost}
    others = {"0": 1.0, "2": 1.0, "3": 1.0}

    assert promtool_errors(tmp_path, left, {"max by (gpu) (gpu:present:bool)": others}) == ""


@pytest.mark.parametrize(
    ("exporter", "name", "series"),
    [
        ("dcgm", "DCGM_FI_DEV_XID_ERRORS", "gpu:xid:last"),
        ("nvitop", "deepops_gpu_xid_last", "gpu:xid:last"),
        ("dcgm", "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "gpu:recovery_action:code"),
        ("nvitop", "deepops_gpu_recovery_action", "gpu:recovery_action:code"),
    ],
)
def test_what_is_wrong_with_a_gpu_is_reported_for_it_alone(
    exporter: str, name: str, series: str, tmp_path: Path
) -> None:
    wrong = dict.fromkeys(samples(exporter, "2", name), "4")

    assert promtool_errors(tmp_path, samples(exporter) | wrong, {f"max by (gpu) ({series} > 0)": {"2": 4.0}}) == ""


def test_what_the_rules_read_of_dcgm_is_what_its_exporter_is_asked_for() -> None:
    lines = COUNTERS.read_text(encoding="utf-8").splitlines()
    fields = [line.split(", ") for line in lines if line and not line.startswith("#")]
    asked = {name for name, metric_type, _ in fields if metric_type != "label"}
    read = set(re.findall(r"DCGM_\w+[A-Z](?![(\w])", RULES.read_text(encoding="utf-8")))

    assert read <= asked
    assert set(re.findall(r"^DCGM_\w+", (TEXTS / "dcgm.prom").read_text(encoding="utf-8"), re.MULTILINE)) == asked
