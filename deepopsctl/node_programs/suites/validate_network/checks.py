"""Checks of this suite; their targets are nodes, a port (NODE/PORT), a cable, or the cluster."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "network"
LINK, PORTS, PAIRS, RDMA = "network-link", "network-ports", "network-pairs", "network-rdma"
FABRIC, LEAVES, SWITCHES = "network-fabric", "network-leaves", "network-switches"
# rates, which deepopsctl compares with the other nodes and with earlier runs
OF_NODES = ("network-bandwidth", "network-latency")
OF_PORTS = ("network-rdma-bandwidth", "network-rdma-latency")

check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)
failed = partial(checks.failed, SUITE)
