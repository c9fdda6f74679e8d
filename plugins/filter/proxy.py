"""The way out of compute nodes: wrappers over deepopsctl.environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from ansible.errors import AnsibleFilterError

from deepopsctl.environment import proxy
from deepopsctl.text.problems import RefusedError

_T = TypeVar("_T")


def _refusing(function: Callable[..., _T], *arguments: Any) -> _T:
    try:
        return function(*arguments)
    except RefusedError as error:
        raise AnsibleFilterError(f"{error.message}: {error.hint}") from error


def environment_proxy(
    expressions: Iterable[object], host: str, nodes: Iterable[str], addresses: Mapping[str, str] | None, port: int
) -> dict[str, Any]:
    """What a node has to know of the cluster's proxies: {url, addresses, listen}."""
    names = [str(each) for each in expressions]
    return asdict(_refusing(proxy.proxy_of, names, host, list(nodes), addresses, int(port)))


def environment_proxy_clients(nodes: Iterable[str], addresses: Mapping[str, str] | None) -> list[str]:
    """Addresses of the nodes that may use the proxies."""
    return _refusing(proxy.clients, list(nodes), addresses)


def environment_proxy_allowed(
    hosts: Iterable[str],
    services: Any,
    chosen: Iterable[str],
    nodes: Iterable[str] = (),
    addresses: Mapping[str, str] | None = None,
) -> list[str]:
    """Names of the hosts that the proxies let pass."""
    own = [*nodes, *(addresses or {}).values()]
    return _refusing(proxy.allowed, list(hosts), services, list(chosen), own)


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return {
            "environment_proxy": environment_proxy,
            "environment_proxy_allowed": environment_proxy_allowed,
            "environment_proxy_clients": environment_proxy_clients,
        }
