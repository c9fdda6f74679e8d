"""Addresses, what the names of all nodes mean on this one, and which repositories it can reach."""

from __future__ import annotations

import ipaddress
import json
import os
import queue
import socket
import threading
import time
from typing import Any

from ..._shared import reach
from .query import output, read

# bridges that container engines and hypervisors make: every node has the same ones
PRIVATE = (
    "lo",
    "docker",
    "br-",
    "virbr",
    "podman",
    "cni",
    "lxcbr",
    "lxdbr",
    "flannel",
    "cali",
    "veth",
    "kube",
    "tailscale",
)
WORKERS = 16
HOSTS_BLOCK = "deepopsctl"


def addresses() -> list[dict[str, Any]]:
    """Every address by which other hosts can reach this one, with its network and MTU."""
    try:
        links = json.loads(output(["ip", "-json", "address", "show", "up"]) or "[]")
    except ValueError:
        return []
    result = []
    for link in links:
        if not link.get("ifname") or link["ifname"].startswith(PRIVATE):
            continue
        for entry in link.get("addr_info", []):
            if entry.get("scope") == "global" and not entry.get("temporary"):
                network = ipaddress.ip_network(f"{entry['local']}/{entry['prefixlen']}", strict=False)
                result.append(
                    {
                        "interface": link["ifname"],
                        "address": entry["local"],
                        "network": str(network),
                        "mtu": link.get("mtu", 0),
                    }
                )
    return result


def names(expected: dict[str, str], seconds: float = 5) -> dict[str, Any]:
    """What differs from `expected` (address by name, '' where any will do): so the answer is short on a good node."""
    listed = {name: addresses for name, addresses in in_hosts().items() if name in expected}
    resolved, silent = resolve_all([name for name in expected if name not in listed], seconds)
    answers = {**listed, **resolved}
    otherwise = {name: own for name, own in answers.items() if own and expected[name] and expected[name] not in own}
    return {
        "asked": len(expected),
        "unresolved": [name for name, own in answers.items() if not own],
        "silent": silent,
        "otherwise": otherwise,
        "called": reverse(expected),
        "managed": HOSTS_BLOCK in read("/etc/hosts"),
    }


def in_hosts(hosts: str = "/etc/hosts", switch: str = "/etc/nsswitch.conf") -> dict[str, list[str]]:
    """What a program gets for the names that are in one line of /etc/hosts, where that is asked first.

    The resolver reads the whole file for each name: with a line for each of 5,000 nodes that is seconds of CPU.
    """
    sources = next((line.split()[1:] for line in read(switch).splitlines() if line.startswith("hosts:")), [])
    if sources[:1] != ["files"]:
        return {}
    addresses_of: dict[str, list[str]] = {}
    for line in read(hosts).splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in set(names):
            addresses_of.setdefault(name, []).append(address)
    return {name: listed for name, listed in addresses_of.items() if len(listed) == 1 and _is_address(listed[0])}


def _is_address(text: str) -> bool:
    try:
        return str(ipaddress.ip_address(text)) == text
    except ValueError:
        return False


def resolve_all(wanted: list[str], seconds: float) -> tuple[dict[str, list[str]], list[str]]:
    """Addresses by name, and the names that the resolver was too slow for."""
    todo: queue.Queue[str] = queue.Queue()
    for name in wanted:
        todo.put(name)
    answers: dict[str, list[str]] = {}

    def work() -> None:
        while True:
            try:
                name = todo.get_nowait()
            except queue.Empty:
                return
            answers[name] = resolve(name)

    # daemons: a resolver that hangs must not keep the program from ending
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(WORKERS, len(wanted)))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0))
    resolved = dict(answers)
    return {name: resolved[name] for name in wanted if name in resolved}, [
        name for name in wanted if name not in resolved
    ]


def resolve(name: str) -> list[str]:
    """The addresses of a name as programs get them; [] where it has none."""
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return []


def reverse(expected: dict[str, str], hosts: str = "/etc/hosts") -> dict[str, list[str]]:
    """Names that /etc/hosts gives to the nodes' addresses, where the right one is not among them.

    Not by DNS: few sites have reverse zones for their nodes, and a thousand failed look-ups take minutes.
    """
    wanted = {address: name for name, address in expected.items() if address}
    called: dict[str, list[str]] = {}
    for line in read(hosts).splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1 and words[0] in wanted:
            called.setdefault(words[0], []).extend(words[1:])
    return {address: aliases for address, aliases in called.items() if wanted[address] not in aliases}


def unreachable(wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each that can't be reached what it is for, its address, why, and whether a cluster does without it."""
    asked = [entry for entry in wanted if not any(os.path.exists(path) for path in entry.get("unless", []))]
    answers = reach.errors_of(str(entry["url"]) for entry in asked)
    return [
        {"what": str(entry["what"]), "url": str(entry["url"]), "why": why, "optional": entry.get("optional") is True}
        for entry in asked
        for why in [answers.get(str(entry["url"]), "")]
        if why
    ]
