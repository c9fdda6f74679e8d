"""Checks of this suite; their targets are nodes, a port (NODE/PORT), a cable, or the cluster."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "network"
LINK, PORTS, PAIRS = "network-link", "network-ports", "network-pairs"
FABRIC, LEAVES = "network-fabric", "network-leaves"
# rates, which deepopsctl compares with the other nodes and with earlier runs
BANDWIDTH, LATENCY = "network-bandwidth", "network-latency"

check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)
failed = partial(checks.failed, SUITE)
