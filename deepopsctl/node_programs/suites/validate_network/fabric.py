"""The InfiniBand fabric as ibnetdiscover (infiniband-diags) prints it: cables, and nodes by switch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..._shared.checks import FAIL, PASS, Check
from . import checks
from .checks import check, failed
from .evaluation import compare_switches

_SWITCH = re.compile(r'^Switch\s+\d+ "(S-[0-9a-f]+)"\s+# "([^"]*)"')
_ADAPTER = re.compile(r'^Ca\s+\d+ "(H-[0-9a-f]+)"\s+# "([^"]*)"')
_PORT = re.compile(r'^\[(\d+)\](?:\[ext \d+\])?\s+"([SH]-[0-9a-f]+)"\[(\d+)\].*\s(\d+x[A-Z0-9]+)\s*$')


class Cable(NamedTuple):
    """A cable of a switch: both ends, each `name[port]`, and its rate as the fabric has it (4xNDR)."""

    switch: str
    port: int
    peer: str
    peer_port: int
    rate: str
    to_adapter: bool

    @property
    def name(self) -> str:
        """Both ends."""
        return f"{self.switch}[{self.port}] to {self.peer}[{self.peer_port}]"


def cables(text: str) -> list[Cable]:
    """All cables, each once; those between switches from the one whose name comes first."""
    names, listed, here = {}, [], ""
    for line in text.splitlines():
        head = _SWITCH.match(line) or _ADAPTER.match(line)
        if head:
            here = head[1]
            names[here] = head[2]
            continue
        port = _PORT.match(line)
        if port and here.startswith("S-"):
            listed.append((here, int(port[1]), port[2], int(port[3]), port[4]))
        if not line.strip():
            here = ""
    made = [
        Cable(names[one], port, names.get(other, other), far, rate, other.startswith("H-"))
        for one, port, other, far, rate in listed
    ]
    return [each for each in made if each.to_adapter or (each.switch, each.port) < (each.peer, each.peer_port)]


def node_of(adapter: str) -> str:
    """`gpu01` of `gpu01 mlx5_0`: adapters have the name of their node first."""
    return adapter.partition(" ")[0].partition(".")[0]


def leaves(listed: Sequence[Cable]) -> dict[str, list[str]]:
    """Nodes by the switch that they are on."""
    by_switch: dict[str, list[str]] = {}
    for cable in listed:
        if cable.to_adapter:
            by_switch.setdefault(cable.switch, []).append(node_of(cable.peer))
    return {switch: sorted(set(nodes)) for switch, nodes in sorted(by_switch.items())}


def evaluate(
    listed: Sequence[Cable], cluster: str, tested: Sequence[str], declared: Mapping[str, Sequence[str]]
) -> Iterator[Check]:
    """The checks of cables and of who is where."""
    if not listed:
        yield failed(checks.FABRIC, cluster, "ibnetdiscover has listed no cable")
        return
    yield from _cables(listed, cluster)
    actual = leaves(listed)
    yield from _missing(listed, tested)
    if declared:
        yield from compare_switches(checks.LEAVES, actual, cluster, declared)


def _cables(listed: Sequence[Cable], cluster: str) -> Iterator[Check]:
    """A cable of another rate than most of its kind, and a pair of switches with fewer cables than most."""
    bad = False
    for to_adapter in (True, False):
        kind = [cable for cable in listed if cable.to_adapter == to_adapter]
        usual = Counter(cable.rate for cable in kind).most_common(1)
        for cable in kind:
            if cable.rate != usual[0][0]:
                bad = True
                text = f"{usual[0][1]} of {len(kind)} such cables have {usual[0][0]}"
                yield check(checks.FABRIC, cable.name, FAIL, cable.rate, usual[0][0], message=text)
    counted = Counter((cable.switch, cable.peer) for cable in listed if not cable.to_adapter)
    usual_count = Counter(counted.values()).most_common(1)
    for (one, other), count in sorted(counted.items()):
        if count < usual_count[0][0]:
            bad = True
            text = "a cable is missing, or dead"
            yield check(checks.FABRIC, f"{one} to {other}", FAIL, count, usual_count[0][0], "cables", text)
    uplinks = Counter(cable.switch for cable in listed if not cable.to_adapter)
    uplinks.update(cable.peer for cable in listed if not cable.to_adapter)
    of_leaves = {switch: uplinks.get(switch, 0) for switch in leaves(listed)}
    most = max(of_leaves.values(), default=0)
    for switch, count in of_leaves.items():
        if count < most:
            bad = True
            text = "a cable to another switch is missing, or dead"
            yield check(checks.FABRIC, switch, FAIL, count, most, "uplinks", text)
    if not bad:
        rates = ", ".join(sorted({cable.rate for cable in listed}))
        yield check(checks.FABRIC, cluster, PASS, f"{len(listed)} cables, {rates}", "cables of one rate")


def _missing(listed: Sequence[Cable], tested: Sequence[str]) -> Iterator[Check]:
    """Nodes of the cluster without a port in the fabric, and with fewer than most."""
    counted = Counter(node_of(cable.peer) for cable in listed if cable.to_adapter)
    ports = {name: counted.get(name, 0) for name in tested}
    # compute nodes of other sorts may have no adapter at all: that is not a fault of the fabric
    usual = Counter(count for count in ports.values() if count).most_common(1)
    for name, count in ports.items():
        if usual and count < usual[0][0]:
            text = f"{usual[0][1]} nodes have {usual[0][0]}: a dead cable, or a port that is down"
            yield check(checks.FABRIC, name, FAIL, count, usual[0][0], "ports", text)
