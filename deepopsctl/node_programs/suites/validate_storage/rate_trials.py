"""How fast nodes are on one entry: one by one where they are few, and all at the same time; outliers are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ..._shared.checks import FAIL, PASS, WARN
from . import checks
from .trials import TrialContext

# below these shares of what the others reach a node is an outlier, and broken
OUTLIER, BROKEN = 0.6, 0.3
# a file system with less room than some times what a trial writes is left alone
_ROOM_TIMES = 4
_MIB = 1024 * 1024
_EXTRA_S = 60.0
# how the C library and fio call it
_FULL = ("Disk quota exceeded", "No space left")


class RateType(NamedTuple):
    """One rate: its act, its two checks, its unit and how a sentence calls it."""

    act: str
    name: str
    together: str
    unit: str
    word: str


WRITING = RateType("write_rate", "storage-write-rate", "storage-write-together", "MiB/s", "writes")
READING = RateType("read_rate", "storage-read-rate", "storage-read-together", "MiB/s", "reads")
FILES = RateType(
    "metadata_rate", "storage-metadata-rate", "storage-metadata-together", "files/s", "makes and removes files"
)
RATE_TYPES = (WRITING, READING, FILES)


def rates(context: TrialContext, nodes: Sequence[str]) -> None:
    """All rates. Each node reads what the one before it wrote where they see the same files, else its own file."""
    reason = _obstacle(context, nodes)
    if reason:
        for rate_type in RATE_TYPES:
            context.skip(rate_type.name, nodes, reason)
        return
    before = {node: {"peer": nodes[place - 1] if context.entry.shared else node} for place, node in enumerate(nodes)}
    # one by one first: the file that is read is there then
    for rate_type in RATE_TYPES:
        parameters = _parameters(context, rate_type)
        single: dict[str, dict[str, Any]] = {}
        for node in list(nodes) if 1 < len(nodes) <= context.bounds.alone else []:
            single.update(context.order_on(rate_type.act, [node], _limit(context), each=before, **parameters))
        for node in _outliers(single):
            # others may have used the storage at that moment: the better one counts
            again = context.order_on(rate_type.act, [node], _limit(context), each=before, **parameters).get(node, {})
            single[node] = max(single[node], again, key=lambda result: float(result.get("rate", 0)))
        joint = context.order_on(
            rate_type.act, [node for node in nodes if node in context.nodes], _limit(context), each=before, **parameters
        )
        results = context.good(rate_type.name, _with_room(context, rate_type, single or joint), "a rate")
        _compare(context, rate_type, results, alone=bool(single) or len(nodes) == 1)
        _sum(context, rate_type, {node: result for node, result in joint.items() if "rate" in result})


def _parameters(context: TrialContext, rate_type: RateType) -> dict[str, Any]:
    bounds = context.bounds
    if rate_type is FILES:
        return {"directory": context.directory, "most": bounds.files, "seconds": bounds.seconds}
    path = context.path("{peer}.rate" if rate_type is READING else "{node}.rate")
    return {"path": path, "size_mib": bounds.size_mib, "seconds": bounds.seconds}


def _limit(context: TrialContext) -> float:
    # a last fsync may take as long as all that it waits for
    return 2 * context.bounds.seconds + _EXTRA_S


def _obstacle(context: TrialContext, nodes: Sequence[str]) -> str:
    if context.entry.type == "tmpfs":
        return "it is memory: nothing to measure"
    if not context.bounds.size_mib or not context.bounds.seconds:
        return "not asked for (validate_storage_size_mb, validate_storage_seconds)"
    together = len(nodes) if context.entry.shared else 1
    need = _ROOM_TIMES * context.bounds.size_mib * together
    room = context.order_on("room", list(nodes), directory=context.directory)
    least = min([int(result.get("free", 0)) // _MIB for result in room.values()] or [0])
    return "" if least >= need else f"only {least} MiB are free for this user, {need} are wanted"


def _with_room(
    context: TrialContext, rate_type: RateType, results: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Those that did not come to the end of the user's quota: that is not a fault, and no rate."""
    full = [node for node, result in results.items() if any(text in str(result.get("error", "")) for text in _FULL)]
    context.skip(rate_type.name, full, "the user may not write as much there: see validate_storage_size_mb")
    return {node: result for node, result in results.items() if node not in full}


def _outliers(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Nodes that are well below the others."""
    rates_of = {node: float(result["rate"]) for node, result in results.items() if "rate" in result}
    others = {node: [rate for name, rate in rates_of.items() if name != node] for node in rates_of}
    return [node for node, rate in rates_of.items() if others[node] and rate < OUTLIER * median(others[node])]


def _compare(
    context: TrialContext, rate_type: RateType, results: Mapping[str, Mapping[str, Any]], *, alone: bool
) -> None:
    """Every node against the median of the others."""
    for node, result in results.items():
        others = [float(other["rate"]) for name, other in results.items() if name != node]
        rate, usual = float(result["rate"]), median(others) if others else 0.0
        how = str(result["by"]) + ("" if result.get("direct", True) else ", not direct")
        how += "" if alone else ", alongside all others"
        status, text = PASS, how
        if others and rate < OUTLIER * usual:
            # of two nodes it is unknown which one is right
            status = FAIL if rate < BROKEN * usual and len(others) > 1 else WARN
            peers = "the others do" if len(others) > 1 else "the other does"
            text = f"{node} {rate_type.word} at {100 * rate / usual:.0f}% of what {peers} ({how})"
        expected = f"at least {OUTLIER * usual:.4g}" if others else ""
        context.checks.append(
            checks.check(rate_type.name, context.target(node), status, f"{rate:.4g}", expected, rate_type.unit, text)
        )


def _sum(context: TrialContext, rate_type: RateType, joint: Mapping[str, Mapping[str, Any]]) -> None:
    """What all nodes reach at the same time."""
    if len(joint) < 2 or not context.entry.shared:
        return
    total = sum(float(result["rate"]) for result in joint.values())
    how = sorted({str(result["by"]) for result in joint.values()})
    text = f"{len(joint)} nodes at the same time, {' and '.join(how)}"
    context.checks.append(
        checks.check(rate_type.together, context.entry.name, PASS, f"{total:.4g}", "", rate_type.unit, text)
    )
