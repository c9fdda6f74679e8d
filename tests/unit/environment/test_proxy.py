"""The cluster's proxies: which one a node uses, and the list of hosts as Squid takes it."""

from __future__ import annotations

import pytest

from deepopsctl.environment.proxy import Proxy, allowed, proxy_of
from deepopsctl.text.problems import RefusedError

NODES = ("ctl1", "gpu01", "gpu02", "login1")
ADDRESSES = {"ctl1": "192.0.2.1", "gpu01": "192.0.2.11", "gpu02": "192.0.2.12", "login1": "2001:db8::2"}


def test_without_a_proxy_there_is_no_address() -> None:
    assert proxy_of([], "gpu01", NODES, ADDRESSES, 3128) == Proxy()


def test_nodes_are_spread_over_the_proxies_and_a_proxy_uses_itself() -> None:
    made = {name: proxy_of(["ctl1", "login1"], name, NODES, ADDRESSES, 3128) for name in NODES}

    assert {name: proxy.url for name, proxy in made.items()} == {
        "ctl1": "http://192.0.2.1:3128",
        "gpu01": "http://[2001:db8::2]:3128",
        "gpu02": "http://192.0.2.1:3128",
        "login1": "http://[2001:db8::2]:3128",
    }
    assert {name: proxy.listen for name, proxy in made.items() if proxy.listen} == {
        "ctl1": "192.0.2.1",
        "login1": "2001:db8::2",
    }
    assert {proxy.addresses for proxy in made.values()} == {("192.0.2.1", "2001:db8::2")}


def test_a_proxy_that_is_no_node_of_the_cluster_is_refused() -> None:
    with pytest.raises(RefusedError, match="gpu09 is not a node of this cluster"):
        proxy_of(["gpu[02-09]"], "gpu01", (*NODES[:3], *(f"gpu0{n}" for n in range(3, 9))), ADDRESSES, 3128)


def test_a_node_without_an_address_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="ctl1 has none"):
        proxy_of(["ctl1"], "gpu01", NODES, {}, 3128)


def test_no_name_is_in_the_list_twice_also_not_below_a_domain() -> None:
    services = {"a": [".example.com", "pypi.org"], "b": ["www.example.com", "example.com", "badexample.com"]}

    assert allowed(["PyPI.org", "*.x.example.com"], services, ["a", "b"]) == [
        "pypi.org",
        ".example.com",
        "badexample.com",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "https://pypi.org",
        "pypi.org:443",
        "a b",
        "a\nhttp_access allow all",
        "",
        ".",
        "#",
        "127.1",
        "10.0.0.1",
        "2130706433",
        "0x7f000001",
        ".0x7f",
        "017700000001",
    ],
)
def test_what_is_no_name_of_a_host_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="not the name of a host"):
        allowed([text], {}, [])


def test_an_unknown_service_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RefusedError, match="no service pipy") as refusal:
        allowed([], {"pypi": [], "comet": []}, ["pipy"])

    assert refusal.value.hint == "there are comet, pypi"


@pytest.mark.parametrize("text", ["login1", "LOGIN1"])
def test_a_node_of_the_cluster_is_refused_for_the_proxy_never_reaches_it(text: str) -> None:
    with pytest.raises(RefusedError, match=r"is a node of this cluster") as refused:
        allowed(["pypi.org", text], {}, [], [*NODES, *ADDRESSES.values()])

    assert "modules_no_proxy" in refused.value.hint
    # one whose name only begins like a node's
    assert allowed(["login10"], {}, [], NODES) == ["login10"]
