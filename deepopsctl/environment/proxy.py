"""The way out of compute nodes: which node's proxy a node uses, whom a proxy serves, and what it lets pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from deepopsctl.text import node_sets
from deepopsctl.text.problems import RefusedError

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_HOST = re.compile(rf"\.?{_LABEL}(?:\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Proxy:
    """What one node has to know: its proxy's URL ('' for none), all proxies, and whether it is one of them."""

    url: str = ""
    addresses: tuple[str, ...] = ()
    listen: str = ""


def proxy_of(
    expressions: Iterable[str], host: str, nodes: Sequence[str], addresses: Mapping[str, str], port: int
) -> Proxy:
    """The proxy of a node; with several, nodes are spread over them in the order of the cluster."""
    names = tuple(dict.fromkeys(chain.from_iterable(node_sets.expand(text) for text in expressions)))
    if not names:
        return Proxy()
    if strangers := [name for name in names if name not in nodes]:
        raise RefusedError(
            f"environment_proxy_nodes: {', '.join(strangers)} is not a node of this cluster",
            "name nodes of cluster.yml",
        )
    all_of_them = tuple(_address(name, addresses) for name in names)
    index = names.index(host) if host in names else nodes.index(host) % len(names)
    address = all_of_them[index]
    shown = f"[{address}]" if ":" in address else address
    return Proxy(f"http://{shown}:{port}", all_of_them, address if host in names else "")


def clients(nodes: Iterable[str], addresses: Mapping[str, str]) -> list[str]:
    """The addresses of the cluster's nodes: the only clients of its proxies, besides those that a site names."""
    return [_address(name, addresses) for name in nodes]


def allowed(
    hosts: Iterable[str], services: Mapping[str, Iterable[str]], chosen: Iterable[str], nodes: Iterable[str] = ()
) -> list[str]:
    """Host names that may be reached, the site's own first; `.example.com` and `*.example.com` are all names below.

    `nodes` are names and addresses of the cluster's own nodes. Squid refuses a list that has a name twice, also below a
    domain that it has.
    """
    names: dict[str, None] = {}
    own = {name.lower() for name in nodes}
    for service in chosen:
        if service not in services:
            raise RefusedError(
                f"environment_proxy_services: no service {service}", f"there are {', '.join(sorted(services))}"
            )
    for text in chain(hosts, *(services[service] for service in chosen)):
        name = str(text).strip().lower().removeprefix("*")
        # the last part of a name is not a valid number; resolvers read 127.1, 0x7f000001 and 2130706433 as addresses
        if not _HOST.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
            raise RefusedError(
                f"environment_proxy_hosts: {text} is not the name of a host",
                "without scheme, port and path: pypi.org, or .example.com for all names below",
            )
        if name in own:
            raise RefusedError(
                f"environment_proxy_hosts: {text} is a node of this cluster, which the proxy never reaches",
                "jobs reach nodes directly: take it out, and add it to modules_no_proxy",
            )
        names[name] = None
    return [name for name in names if not any(_covers(other, name) for other in names if other != name)]


def _covers(domain: str, name: str) -> bool:
    return domain.startswith(".") and (name.endswith(domain) or name == domain[1:])


def _address(name: str, addresses: Mapping[str, str]) -> str:
    try:
        return addresses[name]
    except KeyError:
        raise RefusedError(
            f"a proxy needs the addresses of all nodes, and {name} has none", "add them in cluster.yml"
        ) from None
