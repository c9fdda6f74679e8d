"""Both GPU exporters' made-up text becomes the same series: every GPU of it, under every name that is promised."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.monitoring.replay import PERIOD_S, TEXTS, MadeUpGpus
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
SAMPLE = re.compile(r"(\w+)(\{.*\})? (\S+)$")
EVERY_S = 15


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def series_of(gpus: MadeUpGpus, clock: Clock, scrapes: int) -> list[dict[str, str]]:
    """What Prometheus would have after these scrapes, as promtool wants it."""
    series: dict[str, list[str]] = {}
    for scrape in range(scrapes):
        clock.now = scrape * EVERY_S
        for line in gpus.text().splitlines():
            if sample := SAMPLE.match(line):
                values = series.setdefault(f"{sample[1]}{sample[2] or ''}", [])
                values.append(f"{float(sample[3]):f}".replace("nan", "NaN"))
    return [{"series": name, "values": " ".join(values)} for name, values in series.items()]


def promtool_errors(tmp_path: Path, gpus: MadeUpGpus, clock: Clock, expected: dict[str, dict[str, float]]) -> str:
    """promtool's errors for `{query: {GPU: value}}` at the third scrape; nothing where all is as expected."""
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{EVERY_S}s",
        "tests": [
            {
                "interval": f"{EVERY_S}s",
                "input_series": series_of(gpus, clock, scrapes=3),
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": f"{2 * EVERY_S}s",
                        "exp_samples": [
                            {"labels": f'{{gpu="{gpu}"}}', "value": value} for gpu, value in samples.items()
                        ],
                    }
                    for query, samples in expected.items()
                ],
            }
        ],
    }
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(tests), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("exporter", ["dcgm", "nvitop"])
def test_every_gpu_of_the_made_up_text_has_every_metric(exporter: str, tmp_path: Path) -> None:
    clock = Clock()
    expected = {f"count by (gpu) ({name})": dict.fromkeys("0123", 1.0) for name in OF_EACH_GPU}
    expected["sum by (gpu) (gpu:slices:count)"] = {"3": 2.0}
    expected["count by (gpu) (gpu:utilization:ratio)"] = dict.fromkeys(UTILIZATION[exporter], 1.0)
    for name in ("gpu:memory_used:bytes", "gpu:memory_total:bytes"):
        expected[f"count by (gpu) ({name})"] = dict.fromkeys(MEMORY[exporter], 1.0)

    assert promtool_errors(tmp_path, MadeUpGpus(exporter, clock), clock, expected) == ""


@pytest.mark.parametrize("exporter", ["dcgm", "nvitop"])
def test_every_series_has_labels_for_gpu_and_model(exporter: str, tmp_path: Path) -> None:
    clock = Clock()
    # how many instances a GPU has is a number of its own
    of_one = '__name__=~"gpu:.+", __name__!="gpu:slices:count"'
    nameless = f'count by (gpu) ({{{of_one}, uuid!~"(GPU|MIG)-.+"}} or {{{of_one}, model!~"NVIDIA .+"}})'

    assert promtool_errors(tmp_path, MadeUpGpus(exporter, clock), clock, {nameless: {}}) == ""


@pytest.mark.parametrize("exporter", ["dcgm", "nvitop"])
def test_ratios_are_ratios_and_bytes_are_bytes(exporter: str, tmp_path: Path) -> None:
    clock = Clock()
    wrong = {
        "count by (gpu) (gpu:utilization:ratio > 1 or gpu:utilization:ratio < 0)": {},
        "count by (gpu) (gpu:memory_used:bytes > gpu:memory_total:bytes)": {},
        'max by (gpu) (gpu:memory_total:bytes{gpu="0"})': {"0": 81559 * 2.0**20},
        'count by (gpu) (gpu:sm_clock:hertz{gpu="0"} > 1e9)': {"0": 1.0},
    }

    assert promtool_errors(tmp_path, MadeUpGpus(exporter, clock), clock, wrong) == ""


@pytest.mark.parametrize("exporter", ["dcgm", "nvitop"])
def test_a_gpu_that_answers_no_more_is_not_present(exporter: str, tmp_path: Path) -> None:
    clock = Clock()
    gpus = MadeUpGpus(exporter, clock)
    gpus.lose("1")
    others = {"0": 1.0, "2": 1.0, "3": 1.0}

    assert promtool_errors(tmp_path, gpus, clock, {"max by (gpu) (gpu:present:bool)": others}) == ""


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
    clock = Clock()
    gpus = MadeUpGpus(exporter, clock)
    gpus.set(name, "2", 4)

    assert promtool_errors(tmp_path, gpus, clock, {f"max by (gpu) ({series} > 0)": {"2": 4.0}}) == ""


def test_what_the_rules_read_of_dcgm_is_what_its_exporter_is_asked_for() -> None:
    lines = COUNTERS.read_text(encoding="utf-8").splitlines()
    fields = [line.split(", ") for line in lines if line and not line.startswith("#")]
    asked = {name for name, metric_type, _ in fields if metric_type != "label"}
    read = set(re.findall(r"DCGM_\w+[A-Z](?![(\w])", RULES.read_text(encoding="utf-8")))

    assert read <= asked
    assert set(re.findall(r"^DCGM_\w+", (TEXTS / "dcgm.prom").read_text(encoding="utf-8"), re.MULTILINE)) == asked


def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    clock = Clock()
    twice = {"count by (gpu) (gpu:power:watts)": {"0": 2.0}}

    assert "FAILED" in promtool_errors(tmp_path, MadeUpGpus("dcgm", clock), clock, twice)


@pytest.mark.parametrize(
    ("exporter", "name"), [("dcgm", "DCGM_FI_DEV_GPU_UTIL"), ("nvitop", "gpu_utilization_Percentage")]
)
def test_made_up_values_move(exporter: str, name: str) -> None:
    clock = Clock()
    gpus = MadeUpGpus(exporter, clock)

    seen: set[str] = set()
    for at in (0.0, PERIOD_S / 4, PERIOD_S / 2):
        clock.now = at
        seen.update(line for line in gpus.text().splitlines() if line.startswith(name) and '"0"' in line)

    assert len(seen) == 3
