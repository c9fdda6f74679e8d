"""Whole validations of GPUs, CONSTRUCTED: really evaluated, from results that no GPU gave (gpucheck_samples)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import Any

from deepopsctl.checks.check import parse_check
from deepopsctl.node_programs.suites.gpu_check.bounds import figures_of, pcie_gb_s
from deepopsctl.node_programs.suites.gpu_check.evaluation import evaluate
from deepopsctl.report.model import Facts
from tests.data.gpu_check_samples import Gpu, Result, gpu, result, without_driver

H100, A40, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA A40", "NVIDIA L40S"
LINK = tuple(2**16 * 4**power for power in range(7))
REDUCE = tuple(2**12 * 4**power for power in range(10))


def curve(sizes: Sequence[int], top: float, half: float) -> list[dict[str, float]]:
    """A rate that grows with the message: half of `top` at `half` bytes."""
    return [{"bytes": size, "gb_s": round(top * size / (size + half), 2)} for size in sizes]


def card(node: int, index: int, model: str = H100, slow: float = 1.0, **changes: Any) -> Gpu:
    """One GPU with rates near what its model is made for; `slow` is its share of that in memory."""
    chance = Random(f"{node}/{index}/{model}")  # noqa: S311 (no secret)
    figures = figures_of(model)
    assert figures
    slot = {"generation": 1, "width": 16, "max_generation": 4, "max_width": 16, "gpu_generation": 4, "replays": 0}
    if model == H100:
        slot |= {"max_generation": 5, "gpu_generation": 5}
    link = pcie_gb_s(slot["max_generation"], 16)

    def near(value: float) -> float:
        return round(value * (1 + chance.uniform(-0.006, 0.006)), 1)

    memory = (0.72 if figures.gddr else 0.84) * figures.memory * slow
    rates = {
        "memory_bandwidth": {"status": "measured", "copy_gb_s": near(memory), "triad_gb_s": near(memory * 1.01)},
        "memory_test": {"status": "measured", "tested_mib": 72000, "patterns": 5},
        "host_link": {
            "status": "measured",
            "h2d": curve(LINK, near(0.88 * link), 300_000),
            "d2h": curve(LINK, near(0.86 * link), 380_000),
        },
        "fp32": {"status": "measured", "fp32_tflop_s": near(0.91 * figures.fp32)},
        "bf16": {"status": "measured", "bf16_tflop_s": near(0.95 * figures.bf16 * figures.mma)},
        "bf16_gemm": {"status": "measured", "bf16_gemm_tflop_s": near(0.88 * figures.bf16)},
    }
    load = {
        "sm": 1755, "power": near(640.0 if model == H100 else 290), "temperature": chance.randint(54, 63),
        "generation": slot["max_generation"], "width": 16, "slowdowns": ["power cap"], "samples": 30,
    }  # fmt: skip
    identity = {"uuid": f"GPU-{node:08d}-{index:04d}", "serial": f"165{node:06d}{index:04d}", "name": model}
    wired: Gpu = {} if model == H100 else {"fabric": None, "nvlinks": [], "mig": None, "memory_mib": 46068}
    return gpu(index, **{**identity, **wired, "pcie": slot, "load": load, "measured": rates, **changes})


def meshed(count: int, gb_s: float = 370.0, slow: Mapping[int, float] | None = None) -> list[dict[str, Any]]:
    """Every pair of a node; `slow` has GPUs whose pairs reach a share only."""
    chance, shares = Random(count), slow or {}  # noqa: S311 (no secret)
    return [
        {
            "from": one, "to": other, "direct": True,
            "gb_s": round(gb_s * chance.uniform(0.985, 1) * min(shares.get(one, 1), shares.get(other, 1)), 1),
        }
        for one in range(count) for other in range(count) if one != other
    ]  # fmt: skip


def node(number: int, gpus: Iterable[Gpu], slow: Mapping[int, float] | None = None, **changes: Any) -> Result:
    """A node with these GPUs, all of them together measured as well."""
    listed = list(gpus)
    on_fabric = all(entry.get("fabric") for entry in listed)
    top, pairs = (412.0, 372.0) if on_fabric else (21.0, 23.5)
    reduced = {"status": "measured", "ranks": len(listed)}
    together = {
        "peers": {"status": "measured", "pairs": meshed(len(listed), pairs, slow)},
        "all_reduce": {**reduced, "all_reduce": curve(REDUCE, top * min((slow or {0: 1.0}).values()), 6_000_000)},
    }
    return result(f"gpu{number:02d}", listed, **{"group": together, **changes})


def facts(results: Sequence[Result], expected: int = 8, earlier: Sequence[Result] = ()) -> Facts:
    """The validation that these results make."""
    names = tuple(entry["node"] for entry in results)
    checks = evaluate(results, earlier, dict.fromkeys(names, expected))
    when = datetime(2026, 11, 21, 12, 0, 40, tzinfo=UTC)
    return Facts(
        "hpc", ("gpu",), "20261121-120040-validate", when, 94.2, ("ctl1", *names),
        tuple(parse_check(check) for check in checks), tuple(results),
    )  # fmt: skip


@cache
def two_h100() -> Facts:
    """Two nodes of eight; one GPU of the second has slow memory, slow NVLinks and an error behind it."""
    ecc = {"mode": {"now": True, "after_reboot": True}, "corrected": 2, "uncorrected": 1}
    outlier = card(2, 5, slow=0.52, ecc={**ecc, "corrected_ever": 9, "uncorrected_ever": 1})
    first = node(1, [card(1, index) for index in range(8)])
    across = {"status": "measured", "nodes": "gpu[01-02]", "ranks": 16, "all_reduce": curve(REDUCE, 96.0, 12_000_000)}
    first["group"]["all_reduce_nodes"] = across
    before = result("gpu02", [card(2, 5, slow=1.0)], when="2026-11-03T08:00:00+00:00")
    second = [outlier if index == 5 else card(2, index) for index in range(8)]
    return facts([first, node(2, second, {5: 0.42})], earlier=[before])


def mixed() -> Facts:
    """A40 and L40S in one node, and a node of A40 with a card in a narrow slot."""
    both = [card(1, index, A40 if index < 2 else L40S) for index in range(4)]
    narrow = {"generation": 1, "width": 8, "max_generation": 4, "max_width": 16, "gpu_generation": 4, "replays": 0}
    slow = card(2, 3, A40, pcie=narrow)
    slow["load"]["width"] = 8
    slow["measured"]["host_link"] |= {"h2d": curve(LINK, 13.1, 150_000), "d2h": curve(LINK, 12.8, 150_000)}
    return facts([node(1, both), node(2, [*(card(2, index, A40) for index in range(3)), slow])], 4)


def lab() -> Facts:
    """Nodes with simulated GPUs: nothing can be measured."""
    why = "simulated GPUs of a lab: nothing to measure"
    return facts([{**without_driver(f"node{number}"), "simulated": why} for number in (1, 2)], 4)


@cache
def thousand() -> Facts:
    """A large cluster with a handful of outliers, one that does not open, and a node without a driver."""
    outliers = {(17, 3): 0.55, (40, 0): 0.86, (41, 7): 0.83}
    results = [
        node(number, [card(number, index, slow=outliers.get((number, index), 1.0)) for index in range(8)])
        for number in range(1, 151)
    ]
    results[60]["gpus"][2] = {"index": 2, "error": "the GPU has fallen off the bus"}
    results[70] = without_driver("gpu71")
    return facts(results)
