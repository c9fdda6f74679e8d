"""What the proxy for jobs takes for internal, as Squid compares it: by the network that an address is in."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network

import pytest

from tests.support.paths import ROOT

VARIABLES = (ROOT / "roles" / "http_proxy" / "vars" / "main.yml").read_text(encoding="utf-8")
INTERNAL = [ip_network(text) for text in re.findall(r"'([0-9a-f.:]+/\d+)'", VARIABLES)]


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.168.1.1", "198.18.0.1",
        "192.0.0.170", "224.0.0.1", "255.255.255.255", "0.0.0.1",
        # with an IPv4 address inside: NAT64, 6to4, Teredo, compatible, translated, ISATAP of a link
        "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::", "2001:0:a00:1::1", "::10.0.0.1", "::ffff:0:10.0.0.1",
        "fe80::5efe:a00:1",
        # and what is not assigned
        "::", "::1", "100::1", "5f00::1", "fc00::1", "fd00::1", "fec0::1", "ff02::1", "2001:db8::1", "4000::1",
    ],
)  # fmt: skip
def test_an_address_of_no_public_host_is_internal(address: str) -> None:
    assert any(ip_address(address) in network for network in INTERNAL)


@pytest.mark.parametrize("address", ["151.101.0.223", "2606:4700::1", "2a04:4e42::223", "2600:1f18::1", "8.8.8.8"])
def test_an_address_of_a_public_host_is_not(address: str) -> None:
    assert not any(ip_address(address) in network for network in INTERNAL)


def test_no_network_has_all_of_ipv4_inside_as_squid_stores_it() -> None:
    assert not [network for network in INTERNAL if ip_address("::ffff:8.8.8.8") in network]
