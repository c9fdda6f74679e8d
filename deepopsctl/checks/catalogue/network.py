"""The checks of the suite `network` by name, as docs/reference/validate-network.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_GROUP = "Network"
_CABLE = "the cable and its plugs: `ethtool -S` or `perfquery` for errors, then another cable"

NETWORK = {
    "network-link": Entry(
        _GROUP, "link", "The link with the cluster's address has the rate, duplex and MTU that most nodes have.",
        "`ethtool DEVICE` and `ip link` on the node; the port of its switch",
    ),
    "network-ports": Entry(
        _GROUP, "RDMA ports", "Each InfiniBand or RoCE port is active, at the rate that most nodes have.",
        "`ibstat` on the node; the cable, and the port of its switch",
    ),
    "network-pairs": Entry(
        _GROUP, "pairs", "Each measured pair of nodes reaches most of the bandwidth of the others, by TCP, in jobs.",
        "a node that is slow in all pairs has a bad link; a single slow pair: the switches between them",
    ),
    "network-bandwidth": Entry(
        _GROUP, "bandwidth", "A node's median over its pairs, by one TCP connection, next to the others' and its past.",
        _CABLE,
    ),
    "network-latency": Entry(
        _GROUP, "latency", "The time of a small message by TCP, one way, next to the others and its past.", _CABLE,
    ),
    "network-rdma": Entry(
        _GROUP, "RDMA pairs", "Each measured pair of RDMA ports reaches most of the others' bandwidth (perftest).",
        "a port that is slow in all pairs has a bad cable or a slow slot (`lspci -vv`); for an error see its text",
    ),
    "network-rdma-bandwidth": Entry(
        _GROUP, "RDMA bandwidth", "A port's median over its pairs, by RDMA, next to the others' and its past.", _CABLE,
    ),
    "network-rdma-latency": Entry(
        _GROUP, "RDMA latency", "The time of a small RDMA write, one way, next to the others' and its past.", _CABLE,
    ),
    "network-fabric": Entry(
        _GROUP, "fabric", "InfiniBand's cables have one rate, leaf switches as many uplinks, nodes as many ports.",
        "`ibnetdiscover` and `iblinkinfo` name both ends; the cable, or the port",
    ),
    "network-leaves": Entry(
        _GROUP, "leaf switches", "Nodes are on the leaf switches that `validate_network_leaves` declares.",
        "correct the cabling, or the setting",
    ),
    "network-switches": Entry(
        _GROUP, "switches", "Nodes are on the switches that `validate_network_switches` declares, by LLDP.",
        "correct the cabling, or the setting; `lldpctl` on the node",
    ),
}  # fmt: skip
PER_NODE = frozenset({"network-link", "network-bandwidth", "network-latency"})
