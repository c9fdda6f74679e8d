"""What ports and pairs mean: each next to the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ..._shared.checks import FAIL, PASS, WARN, Check, one_line
from . import checks
from .checks import check, failed

ACTIVE = "ACTIVE"
# what a link is compared by, and how it is shown
_LINK = {"mtu": "MTU {}", "mbit_s": "{} Mbit/s", "duplex": "{} duplex"}


class Pair(NamedTuple):
    """One measurement between two nodes: microseconds one way, bytes a second."""

    one: str
    other: str
    us: float
    bytes_s: float

    @property
    def name(self) -> str:
        """Both nodes."""
        return f"{self.one}-{self.other}"


def links(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[Check]:
    """A check of each node: the link with the cluster's address has what most have."""
    known = {node: report["link"] for node, report in reports.items() if report.get("link")}
    usual = {key: Counter(str(link.get(key)) for link in known.values()).most_common(1)[0][0] for key in _LINK if known}
    for node in reports:
        if node not in known:
            yield failed(checks.LINK, node, "no interface has the address by which the cluster reaches this node")
            continue
        link = known[node]
        outliers = [key for key in _LINK if str(link.get(key)) != usual[key]]
        measured, expected = (
            ", ".join(
                text.format(values.get(key)) for key, text in _LINK.items() if values.get(key) not in ("", 0, "0")
            )
            for values in ({key: link.get(key) for key in _LINK}, usual)
        )
        text = f"{link.get('name')}: {'others have ' + expected if outliers else 'as the others'}"
        yield check(checks.LINK, node, FAIL if outliers else PASS, measured, expected, message=text)


def ports(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[Check]:
    """A check of each RDMA port that a node has or that the others have; none where no node has one."""
    names = sorted({name for report in reports.values() for name in report.get("ports", {})})
    for name in names:
        has = {node: report["ports"][name] for node, report in reports.items() if name in report.get("ports", {})}
        states = Counter(port["state"] for port in has.values())
        rates = Counter(port["rate"] for port in has.values() if port["state"] == ACTIVE)
        # a port that no node has a cable in is not used
        if set(states) == {"DOWN"}:
            continue
        rate = rates.most_common(1)[0][0] if rates else ""
        expected = f"{ACTIVE}, {rate}" if rate else ACTIVE
        for node in reports:
            target = f"{node}/{name.replace('/', '-')}"
            if node not in has:
                # nodes of another sort have other devices
                if len(has) * 2 > len(reports):
                    yield check(
                        checks.PORTS, target, WARN, "no such port", expected, message=f"{len(has)} nodes have it"
                    )
                continue
            port = has[node]
            good = port["state"] == ACTIVE and port["rate"] == rate
            text = f"{port['layer']}; {rates.most_common(1)[0][1]} nodes have {rate}" if rate else port["layer"]
            measured = ", ".join(filter(None, (port["state"], port["rate"])))
            yield check(checks.PORTS, target, PASS if good else FAIL, measured, expected, message=text)


def parse(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[list[Pair], dict[str, str]]:
    """The pairs, and the error of each pair that gave none."""
    made, errors = [], {}
    for node, lines in answers.items():
        for line in lines:
            if "error" in line:
                errors["-".join(sorted((node, str(line.get("peer")))))] = str(line["error"])
            elif "us" in line:
                try:
                    pair = Pair(node, str(line["peer"]), float(line["us"]), float(line["bytes_s"]))
                except (KeyError, TypeError, ValueError):
                    continue
                if pair.us > 0 and pair.bytes_s > 0:
                    made.append(pair)
    return made, errors


def pairs(listed: Sequence[Pair], errors: Mapping[str, str], target: str, share: float) -> Iterator[Check]:
    """A check of each pair that is slow or gave nothing; one for all where none is."""
    usual = median(pair.bytes_s for pair in listed) if listed else 0.0
    slow = [pair for pair in listed if pair.bytes_s < usual * share]
    for pair in slow:
        text = f"the median of {len(listed)} pairs is {_gbit(usual)}"
        yield check(
            checks.PAIRS, pair.name, FAIL, _gbit(pair.bytes_s), f"at least {_gbit(usual * share)}", "Gbit/s", text
        )
    for name, error in sorted(errors.items()):
        yield failed(checks.PAIRS, name, one_line(error), "no answer", "an answer")
    if listed and not slow and not errors:
        worst = min(listed, key=lambda pair: pair.bytes_s)
        text = f"slowest of {len(listed)}: {worst.name}"
        yield check(
            checks.PAIRS, target, PASS, _gbit(worst.bytes_s), f"at least {_gbit(usual * share)}", "Gbit/s", text
        )


def _gbit(bytes_s: float) -> str:
    return f"{bytes_s * 8 / 1e9:.3g}"


def rates(listed: Sequence[Pair], nodes: Sequence[str], kind: str, share: float) -> Iterator[dict[str, Any]]:
    """Of each node the median of its pairs: a node with a bad cable has slow pairs only."""
    for node in nodes:
        own = [pair for pair in listed if node in (pair.one, pair.other)]
        if own:
            bandwidth, latency = median(pair.bytes_s for pair in own) * 8 / 1e9, median(pair.us for pair in own)
            usual = {"suite": checks.SUITE, "target": node, "kind": kind}
            yield {**usual, "name": checks.BANDWIDTH, "value": bandwidth, "unit": "Gbit/s", "share": share}
            # a latency is disturbed by much less
            least = {"value": latency, "unit": "us", "share": share * share, "low": True}
            yield {**usual, "name": checks.LATENCY, **least}


def rounds(nodes: Sequence[str], most: int) -> list[list[tuple[str, str]]]:
    """Rounds in which each node has one partner, another one each time (the circle method); at most so many."""
    ring: list[str] = [*nodes, *([""] if len(nodes) % 2 else [])]
    made = []
    for _number in range(min(most, len(ring) - 1)):
        half = len(ring) // 2
        made.append([(one, other) for one, other in zip(ring[:half], reversed(ring[half:])) if one and other])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return made
