"""`validate network` on two nodes: a pair, a slow link, another MTU; and a fabric of ibsim, read by ibnetdiscover."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until
from tests.lab.smoke import validate

NODES = ("cn01", "cn02")
BOTH = "cn[01-02]"
FABRIC = """\
Switch 8 "leaf1"
[1] "cn01"[1]
[7] "spine1"[1]
[8] "spine2"[1]

Switch 8 "leaf2"
[1] "cn02"[1]
[7] "spine1"[2]
[8] "spine2"[2]

Switch 8 "spine1"
[1] "leaf1"[7]
[2] "leaf2"[7]

Switch 8 "spine2"
[1] "leaf1"[8]
[2] "leaf2"[8]

Hca 1 "cn01"
[1] "leaf1"[1]

Hca 1 "cn02"
[1] "leaf2"[1]
"""
LEAVES = "validate_network_fabric_node: cn01\nvalidate_network_leaves: {leaf1: cn01, leaf2: cn02}\n"
# a bridge forwards LLDP to this address, not to the usual one; silent nodes hear the switch alone
LLDPD = """\
apt-get install -qq --no-install-recommends lldpd >/dev/null
echo 'configure lldp agent-type nearest-customer-bridge' > /etc/lldpd.d/test.conf
echo 'configure lldp tx-interval 1' >> /etc/lldpd.d/test.conf
echo '{0}' >> /etc/lldpd.d/test.conf
systemctl restart lldpd
"""
SWITCHES = "validate_network_switches: {tor1: cn01, tor2: cn02}\n"
# the real ibnetdiscover, whose packets go to the simulator instead of an adapter
WRAPPER = "#!/bin/sh\nSIM_HOST=cn01 exec ibsim-run /usr/sbin/ibnetdiscover"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    with fresh_cluster(f"{PREFIX}-network", tmp_path_factory, "--compute", "2") as made:
        made.deploy()
        yield made


def test_the_pair_is_measured_and_links_are_equal(cluster: LabCluster) -> None:
    result = validate(cluster, suite="network")

    of_nodes = {(f"network-{what}", node): "pass" for what in ("link", "bandwidth", "latency") for node in NODES}
    expected = of_nodes | {("network-pairs", BOTH): "pass"}
    assert {key: check["status"] for key, check in result.checks.items()} == expected, result.shown


def test_a_slow_link_and_another_mtu_are_named(cluster: LabCluster) -> None:
    cluster.root(
        "cn02", "ip link set eth0 mtu 1400 && tc qdisc add dev eth0 root tbf rate 50mbit burst 64kb latency 50ms"
    )
    try:
        result = validate(cluster, suite="network")
    finally:
        cluster.root("cn02", "tc qdisc del dev eth0 root; ip link set eth0 mtu 1500")

    assert ("network-bandwidth", "cn02") in result.failed(), result.shown
    assert any(name == "network-link" for name, _node in result.failed())


def test_a_node_on_another_switch_than_declared_is_named_by_lldp(cluster: LabCluster) -> None:
    edit(cluster.directory / SETTINGS, "---\n", f"---\n{SWITCHES}")
    try:
        unknown = validate(cluster, suite="network")
        # the controller is the switch of both
        cluster.root("ctl1", LLDPD.format("configure system hostname tor1"))
        for node in NODES:
            cluster.root(node, LLDPD.format("configure lldp status rx-only"))
        for node in NODES:
            wait_until("it hears the switch", lambda node=node: cluster.holds(node, "lldpctl | grep -q tor1"))  # type: ignore[misc]  # bound now
        result = validate(cluster, suite="network")
    finally:
        edit(cluster.directory / SETTINGS, SWITCHES, "")

    assert unknown.message("network-switches", "cn01").startswith("it has no lldpd"), unknown.shown
    assert result.checks["network-switches", "cn02"]["measured"] == "tor1", result.shown
    assert result.checks["network-switches", "tor1"]["measured"] == "cn02"
    assert result.message("network-link", "cn01") == "eth0: as the others; eth0 of tor1"


def test_a_dead_cable_and_one_on_another_switch_are_named(cluster: LabCluster) -> None:
    cluster.root("cn01", "apt-get install -qq --no-install-recommends ibsim-utils infiniband-diags >/dev/null")
    cluster.root(
        "cn01", f"cat > /usr/local/sbin/ibnetdiscover <<'END'\n{WRAPPER}\nEND\nchmod +x /usr/local/sbin/ibnetdiscover"
    )
    edit(cluster.directory / SETTINGS, "---\n", f"---\n{LEAVES}")
    try:
        simulate(cluster, FABRIC)
        good = validate(cluster, suite="network")
        # the second uplink of leaf2 is dead
        simulate(cluster, FABRIC.replace('[8] "spine2"[2]\n', "").replace('[2] "leaf2"[8]\n', ""))
        dead = validate(cluster, suite="network")
        simulate(cluster, FABRIC.replace('"cn01"', '"x"').replace('"cn02"', '"cn01"').replace('"x"', '"cn02"'))
        swapped = validate(cluster, suite="network")
    finally:
        cluster.root("cn01", "pkill -x ibsim; rm /usr/local/sbin/ibnetdiscover")
        edit(cluster.directory / SETTINGS, LEAVES, "")

    assert good.checks["network-fabric", cluster.name]["measured"] == "6 cables, 4xSDR", good.shown
    assert good.checks["network-leaves", cluster.name]["status"] == "pass"
    assert dead.checks["network-fabric", "leaf2"]["measured"] == "1", dead.shown
    assert swapped.checks["network-leaves", "cn01"]["measured"] == "leaf2", swapped.shown


def simulate(cluster: LabCluster, text: str) -> None:
    """Start the fabric on cn01."""
    cluster.root("cn01", f"pkill -x ibsim; cat > /root/fabric <<'END'\n{text}END")
    cluster.root("cn01", "(sleep 900 | setsid ibsim -s /root/fabric) >/dev/null 2>&1 & sleep 1")
