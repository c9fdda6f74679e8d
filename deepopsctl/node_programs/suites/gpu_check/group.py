"""Evaluate a node's GPUs as a group, and whether the nodes have the same versions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

from .between import NAME, between_nodes
from .bounds import PEERS_SHARE, SHARES, figures_of
from .results import FAIL, PASS, SKIP, WARN, check, who

Result = Any  # one node's result: plain JSON
Pair = Any  # one entry of its `pairs`
_VERSIONS = ("driver", "cuda")
_SHOWN = 8


def group(results: list[Result], earlier: list[Result]) -> Iterator[dict[str, str]]:
    """Bandwidth between GPUs, all-reduce, versions."""
    for result in results:
        if result.get("problem"):
            continue
        yield _peers(result)
        yield _all_reduce(result)
        yield from _between_nodes(result, earlier)
        yield _library(result)
    yield from versions(results)


def _peers(result: Result) -> dict[str, str]:
    name, node = "gpu-peers", result["node"]
    peers = result["group"].get("peers") or {"status": "skip", "message": "not measured"}
    if peers["status"] != "measured":
        return _without_value(name, node, peers)
    pairs = peers["pairs"]
    slowest, middle = min(pair["gb_s"] for pair in pairs), median(pair["gb_s"] for pair in pairs)
    figure = _fabric_figure(result)
    measured = f"{slowest:.4g} to {max(pair['gb_s'] for pair in pairs):.4g}"
    if not figure:
        # the expected topology is unknown: the numbers are shown, not evaluated
        text = f"no NVSwitch fabric: pairs differ by how the board is wired (nvidia-smi topo -m); median {middle:.4g}"
        return check(name, node, PASS, measured, "arrives unharmed", "GB/s", text)
    shares = SHARES["nvlink"]
    slow = [pair for pair in pairs if pair["gb_s"] < max(shares.warn * figure, PEERS_SHARE * middle)]
    status = FAIL if slowest < shares.fail * figure else WARN if slow else PASS
    expected = f"at least {shares.warn * figure:.4g}"
    return check(name, node, status, measured, expected, "GB/s", _outlier(result, pairs, slow) if slow else "")


def _outlier(result: Result, pairs: list[Pair], slow: list[Pair]) -> str:
    """The slow pairs; and the GPU that they have in common, where there is one."""
    named = {gpu["index"]: gpu for gpu in result["gpus"]}
    common = Counter(pair[end] for pair in slow for end in ("from", "to"))
    (index, times), *others = common.most_common(2)
    shown = [f"{pair['from']} to {pair['to']}: {pair['gb_s']:.4g}" for pair in slow[:_SHOWN]]
    more = f" and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
    text = "slow pairs: " + "; ".join(shown) + more
    if times == len(slow) and len(pairs) > 2 and all(count < times for _, count in others):
        return f"{who(result['node'], named[index])} is in all of them; {text}"
    return f"{result['node']}: {text}"


def _all_reduce(result: Result) -> dict[str, str]:
    name, node = "gpu-all-reduce", result["node"]
    all_reduce = result["group"].get("all_reduce") or {"status": "skip", "message": "not measured"}
    if all_reduce["status"] != "measured":
        return _without_value(name, node, all_reduce)
    value = max(point["gb_s"] for point in all_reduce["all_reduce"])
    figure = _fabric_figure(result)
    text = f"{all_reduce['ranks']} ranks, bus bandwidth"
    if not figure:
        return check(name, node, PASS, f"{value:.4g}", "sums are right", "GB/s", text + "; no fabric, no bound")
    shares = SHARES["nvlink"]
    status = FAIL if value < shares.fail * figure else WARN if value < shares.warn * figure else PASS
    return check(name, node, status, f"{value:.4g}", f"at least {shares.warn * figure:.4g}", "GB/s", text)


def _between_nodes(result: Result, earlier: list[Result]) -> Iterator[dict[str, str]]:
    all_reduce = result["group"].get("all_reduce_nodes")
    if all_reduce and all_reduce["status"] != "measured":
        yield _without_value(NAME, all_reduce["nodes"], all_reduce)
    elif all_reduce:
        yield from between_nodes(result, earlier)


def _without_value(name: str, node: str, outcome: dict[str, Any]) -> dict[str, str]:
    if outcome["status"] == "skip":
        return check(name, node, SKIP, message=outcome["message"])
    words = "wrong results" if outcome["status"] == "wrong" else "no result"
    return check(name, node, FAIL, words, "right results", message=f"{node}: {outcome['message']}")


def _fabric_figure(result: Result) -> float:
    """NVLink's figure where all GPUs of the node are behind one NVSwitch fabric; else 0."""
    states = {(gpu.get("fabric") or {}).get("state") for gpu in result["gpus"]}
    rows = [figures_of(gpu.get("name") or "") for gpu in result["gpus"]]
    if states != {"completed"} or None in rows:
        return 0.0
    return min((row.nvlink for row in rows if row), default=0.0)


def _library(result: Result) -> dict[str, str]:
    driver, nvml = result["versions"].get("driver"), result["versions"].get("nvml")
    if not driver or not nvml:
        return check("gpu-driver", result["node"], SKIP, message="the driver does not report its version")
    good = driver in nvml
    text = "" if good else f"{result['node']}: NVML is {nvml}, the driver {driver}: reboot after an update"
    return check("gpu-driver", result["node"], PASS if good else WARN, driver, f"as NVML {nvml}", message=text)


def versions(results: list[Result]) -> Iterator[dict[str, str]]:
    """Nodes whose driver or CUDA is not what most nodes have."""
    with_driver = [result for result in results if result["versions"].get("driver")]
    if len(with_driver) < 2:
        return
    for key in _VERSIONS:
        common, times = Counter(result["versions"].get(key) for result in with_driver).most_common(1)[0]
        for result in with_driver:
            has, node = result["versions"].get(key), result["node"]
            text = "" if has == common else f"{node} has {key} {has}, {times} nodes have {common}"
            status = PASS if has == common else WARN
            yield check(f"gpu-{key}-agrees", node, status, has or "", common or "", message=text)
