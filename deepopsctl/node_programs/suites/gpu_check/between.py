"""Evaluate all-reduce between nodes: against the bandwidth of network and nodes, and against earlier results. Pure.

Bus bandwidth reflects the bottleneck, "NVLink, PCI, QPI, or network" (nccl-tests, PERFORMANCE.md), whatever the number
of ranks. So the figure is the least of what a node's ports carry, what its GPUs reduce among themselves, and what they
connect to the host: all of the first node, as the nodes of one job are identical.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .bounds import SHARES
from .rates import HOST_LINKS, Finding, against_past, value_of
from .results import FAIL, PASS, WARN, check, worst

Result = Any  # one node's result: plain JSON
NAME = "gpu-all-reduce-nodes"


class Figure(NamedTuple):
    """GB/s in one direction, whose that is, and which shares of it are bad."""

    gb_s: float
    what: str
    shares: str


def bandwidth(all_reduce: dict[str, Any]) -> float | None:
    """The best over all message sizes; None where it gave no number."""
    if all_reduce.get("status") != "measured":
        return None
    return max((float(point["gb_s"]) for point in all_reduce.get("all_reduce") or ()), default=None)


def figure(result: Result) -> Figure | None:
    """Bandwidth of the slowest part of the path; None for an unknown network."""
    ports = result.get("network") or {}
    if ports.get("rdma"):
        # some ports may be for storage: at most one per GPU is counted
        fastest = max(port["gb_s"] for port in ports["rdma"])
        used = min(sum(port["gb_s"] == fastest for port in ports["rdma"]), max(1, len(result["gpus"])))
        network = Figure(used * fastest, f"{used} RDMA {'ports' if used > 1 else 'port'} of the node", "rdma")
    elif ports.get("ethernet"):
        fastest = max(port["gb_s"] for port in ports["ethernet"])
        network = Figure(fastest, "its fastest Ethernet port, without RDMA", "tcp")
    else:
        return None
    return min((network, *_inside(result, network.shares)), key=lambda one: one.gb_s)


def _inside(result: Result, shares: str) -> Iterator[Figure]:
    alone = bandwidth((result.get("group") or {}).get("all_reduce") or {})
    if alone:
        yield Figure(alone, "all-reduce within the node", shares)
    links = [[value_of(gpu, metric) or 0.0 for metric in HOST_LINKS] for gpu in result["gpus"]]
    if links and all(min(rates) for rates in links):
        yield Figure(sum(min(rates) for rates in links), "the GPUs' links to the host", shares)


def between_nodes(result: Result, earlier: list[Result]) -> Iterator[dict[str, str]]:
    """All-reduce over several nodes stands in the first one's result."""
    all_reduce = (result.get("group") or {}).get("all_reduce_nodes")
    value = bandwidth(all_reduce or {})
    if not all_reduce or value is None:
        return
    expected, bound = _against_figure(value, figure(result))
    past = against_past(value, _newest(all_reduce, earlier, str(result["when"])))
    findings = [finding for finding in (bound, past) if finding]
    status = worst(PASS, *(finding.status for finding in findings))
    text = "; ".join([f"{all_reduce['ranks']} ranks, bus bandwidth", *(finding.text for finding in findings)])
    text = text if status == PASS else f"{all_reduce['nodes']}: {text}"
    yield check(NAME, all_reduce["nodes"], status, f"{value:.4g}", expected, "GB/s", text)


def _against_figure(value: float, limit: Figure | None) -> tuple[str, Finding]:
    if limit is None:
        return "sums are right", Finding(PASS, "no bound: the node shows no network hardware")
    shares = SHARES[limit.shares]
    status = FAIL if value < shares.fail * limit.gb_s else WARN if value < shares.warn * limit.gb_s else PASS
    text = f"{value / limit.gb_s:.0%} of the {limit.gb_s:.4g} GB/s of {limit.what}"
    return f"at least {shares.warn * limit.gb_s:.4g}", Finding(status, text)


def _newest(all_reduce: dict[str, Any], earlier: list[Result], before: str) -> tuple[float, str] | None:
    """What the same nodes gave the last time, and when."""
    earlier_values = []
    for old in earlier:
        other = (old.get("group") or {}).get("all_reduce_nodes") or {}
        value = bandwidth(other)
        if other.get("nodes") == all_reduce["nodes"] and value is not None and str(old["when"]) < before:
            earlier_values.append((str(old["when"]), value))
    if not earlier_values:
        return None
    when, value = max(earlier_values)
    return value, when
