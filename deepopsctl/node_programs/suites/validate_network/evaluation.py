"""What ports and pairs mean: each next to the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ..._shared.checks import FAIL, PASS, WARN, Check, one_line
from ..._shared.hostlist import fold
from . import checks
from .checks import check, failed, skip

ACTIVE = "ACTIVE"
_MOST_NAMED = 8
# what a link is compared by, and how it is shown
_LINK = {"mtu": "MTU {}", "mbit_s": "{} Mbit/s", "duplex": "{} duplex"}


class Pair(NamedTuple):
    """One measurement between two nodes, or two of their ports: microseconds one way, bytes a second."""

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
        seen = [each for each in reports[node].get("switches", ()) if each["interface"] == link.get("name")]
        text += "".join(f"; {each['port']} of {each['switch']}" for each in seen)
        yield check(checks.LINK, node, FAIL if outliers else PASS, measured, expected, message=text)


def switches(
    reports: Mapping[str, Mapping[str, Any]], cluster: str, declared: Mapping[str, Sequence[str]]
) -> Iterator[Check]:
    """Checks of the declared switches, by what each node's lldpd hears; nodes that were not asked are left out."""
    asked = [node for node in reports if "switches" in reports[node]]
    for node in reports if declared else ():
        if node not in asked:
            yield skip(checks.SWITCHES, node, f"{reports[node].get('silent') or 'no answer'}: its switch is not known")
    actual: dict[str, list[str]] = {}
    for node in asked:
        for name in {each["switch"] for each in reports[node]["switches"]}:
            actual.setdefault(name, []).append(node)
    of_asked = {switch: [node for node in nodes if node in asked] for switch, nodes in declared.items()}
    if any(of_asked.values()):
        yield from compare_switches(checks.SWITCHES, actual, cluster, of_asked)


def compare_switches(
    name: str, actual: Mapping[str, Sequence[str]], cluster: str, declared: Mapping[str, Sequence[str]]
) -> Iterator[Check]:
    """Each declared switch has the declared nodes; one check for all where each has."""
    where: dict[str, set[str]] = {}
    for switch, nodes in actual.items():
        for node in nodes:
            where.setdefault(node, set()).add(switch)
    bad = False
    for switch, nodes in declared.items():
        for node in nodes:
            heard = where.get(node, set())
            if switch not in heard:
                bad = True
                measured = ", ".join(sorted(heard)) or "no switch"
                yield check(name, node, FAIL, measured, switch, message="another switch than declared")
        others = sorted(set(actual.get(switch, ())) - set(nodes))
        if others:
            bad = True
            text = "nodes that are not declared to be on this switch"
            yield check(name, switch, FAIL, fold(others[:_MOST_NAMED]), fold(list(nodes)), message=text)
    if not bad:
        yield check(name, cluster, PASS, f"{len(declared)} switches", f"{len(declared)} switches")


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
            target = port_name(node, name)
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
    """The pairs of nodes, and the error of each pair that gave none."""
    return _parse((node, str(line["peer"]), line) for node, line in _of_peers(answers) if "rdma" not in line)


def parse_ports(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[list[Pair], dict[str, str]]:
    """The same of RDMA ports, as `gpu01/mlx5_0-1`."""
    return _parse(
        (port_name(node, line["rdma"]), port_name(str(line["peer"]), line["rdma"]), line)
        for node, line in _of_peers(answers)
        if "rdma" in line
    )


def port_name(node: str, port: object) -> str:
    """A port of a node as a target: `gpu01/mlx5_0-1` of `mlx5_0/1`."""
    return f"{node}/{str(port).replace('/', '-')}"


def _of_peers(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((node, line) for node, lines in answers.items() for line in lines if "peer" in line)


def _parse(lines: Iterable[tuple[str, str, Mapping[str, Any]]]) -> tuple[list[Pair], dict[str, str]]:
    made, errors = [], {}
    for one, other, line in lines:
        if "error" in line:
            errors["-".join(sorted((one, other)))] = str(line["error"])
        elif "us" in line:
            try:
                pair = Pair(one, other, float(line["us"]), float(line["bytes_s"]))
            except (KeyError, TypeError, ValueError):
                continue
            if pair.us > 0 and pair.bytes_s > 0:
                made.append(pair)
    return made, errors


def active_ports(report: Mapping[str, Any]) -> dict[str, str]:
    """Its active RDMA ports, and the rate of each."""
    return {name: port["rate"] for name, port in report.get("ports", {}).items() if port["state"] == ACTIVE}


def pairs(
    listed: Sequence[Pair], errors: Mapping[str, str], target: str, share: float, name: str = checks.PAIRS
) -> Iterator[Check]:
    """A check of each pair that is slow or gave nothing; one for all where none is."""
    usual = median(pair.bytes_s for pair in listed) if listed else 0.0
    slow = [pair for pair in listed if pair.bytes_s < usual * share]
    for pair in slow:
        text = f"the median of {len(listed)} pairs is {_gbit(usual)}"
        yield check(name, pair.name, FAIL, _gbit(pair.bytes_s), f"at least {_gbit(usual * share)}", "Gbit/s", text)
    for pair_name, error in sorted(errors.items()):
        yield failed(name, pair_name, one_line(error), "no answer", "an answer")
    if listed and not slow and not errors:
        worst = min(listed, key=lambda pair: pair.bytes_s)
        text = f"slowest of {len(listed)}: {worst.name}"
        yield check(name, target, PASS, _gbit(worst.bytes_s), f"at least {_gbit(usual * share)}", "Gbit/s", text)


def _gbit(bytes_s: float) -> str:
    return f"{bytes_s * 8 / 1e9:.3g}"


def rates(
    listed: Sequence[Pair], targets: Iterable[str], kind: str, share: float, names: tuple[str, str] = checks.OF_NODES
) -> Iterator[dict[str, Any]]:
    """Of each node, or port, the median of its pairs: one with a bad cable has slow pairs only."""
    for target in targets:
        own = [pair for pair in listed if target in (pair.one, pair.other)]
        if own:
            bandwidth, latency = median(pair.bytes_s for pair in own) * 8 / 1e9, median(pair.us for pair in own)
            usual = {"suite": checks.SUITE, "target": target, "kind": kind}
            yield {**usual, "name": names[0], "value": bandwidth, "unit": "Gbit/s", "share": share}
            # a latency is disturbed by much less
            least = {"value": latency, "unit": "us", "share": share * share, "low": True}
            yield {**usual, "name": names[1], **least}


def rounds(nodes: Sequence[str], most: int) -> list[list[tuple[str, str]]]:
    """Rounds in which each node has one partner, another one each time (the circle method); at most so many."""
    ring: list[str] = [*nodes, *([""] if len(nodes) % 2 else [])]
    made = []
    for _number in range(min(most, len(ring) - 1)):
        half = len(ring) // 2
        made.append([(one, other) for one, other in zip(ring[:half], reversed(ring[half:])) if one and other])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return made
