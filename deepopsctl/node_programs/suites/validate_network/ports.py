"""What a node says of its network: the link with the cluster's address, RDMA ports, and switches that lldpd hears."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from ..._shared.checks import one_line

NET, INFINIBAND = "/sys/class/net", "/sys/class/infiniband"
_LIMIT_S = 20.0


def report(address: str, net: str = NET, infiniband: str = INFINIBAND) -> dict[str, Any]:
    """The link that has the address, all ports of RDMA devices by name, and the switches of all links."""
    name = interface_of(_addresses(), address)
    return {"link": link(name, net) if name else {}, "ports": rdma_ports(infiniband), **neighbours()}


def neighbours() -> dict[str, Any]:
    """{switches: [{interface, switch, port}]}, or {silent: why lldpd has none}. Its socket is root's."""
    try:
        done = subprocess.run(["lldpctl", "-f", "json0"], capture_output=True, check=False, timeout=_LIMIT_S)
    except FileNotFoundError:
        return {"silent": "it has no lldpd"}
    except subprocess.TimeoutExpired:
        return {"silent": f"lldpctl gave no answer in {_LIMIT_S:.0f} s"}
    if done.returncode:
        return {"silent": one_line(done.stderr.decode(errors="replace")) or "lldpctl failed"}
    try:
        return {"switches": list(switches_of(json.loads(done.stdout)))}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return {"silent": f"lldpctl's answer can't be read: {error}"}


def switches_of(answer: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The neighbours in what `lldpctl -f json0` prints. A switch without a name is known by its id."""
    for table in answer["lldp"]:
        for interface in table.get("interface", []):
            chassis, port = interface["chassis"][0], interface["port"][0]
            switch, name = (chassis.get("name") or chassis["id"])[0], port["id"][0]
            if name["type"] == "mac":
                name = (port.get("descr") or port["id"])[0]
            yield {"interface": interface["name"], "switch": switch["value"], "port": name["value"]}


def _addresses() -> str:
    argv = ["ip", "-oneline", "address", "show"]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=_LIMIT_S)
    return done.stdout.decode(errors="replace")


def interface_of(addresses: str, address: str) -> str:
    """The interface that has it, from what ip prints; '' for none."""
    for line in addresses.splitlines():
        words = line.split()
        if len(words) > 3 and words[3].partition("/")[0] == address:
            return words[1]
    return ""


def link(name: str, net: str = NET) -> dict[str, Any]:
    """Its name, MTU, Mbit/s (0 where the driver does not say), and packets with errors."""
    place = os.path.join(net, name)
    received = os.path.join(place, "statistics", "rx_errors")
    return {
        "name": name,
        "mtu": _number(os.path.join(place, "mtu")),
        "mbit_s": max(_number(os.path.join(place, "speed")), 0),
        "duplex": _text(os.path.join(place, "duplex")),
        "errors": _number(received),
    }


def rdma_ports(infiniband: str = INFINIBAND) -> dict[str, dict[str, str]]:
    """{mlx5_0/1: {state, rate, layer}} of all devices: `ACTIVE`, `400 Gb/sec (4X NDR)`, `InfiniBand`."""
    ports = {}
    for device in _names(infiniband):
        place = os.path.join(infiniband, device, "ports")
        for port in _names(place):
            here = os.path.join(place, port)
            ports[f"{device}/{port}"] = {
                "state": _text(os.path.join(here, "state")).partition(": ")[2],
                "rate": _text(os.path.join(here, "rate")),
                "layer": _text(os.path.join(here, "link_layer")),
            }
    return ports


def _names(place: str) -> list[str]:
    try:
        return sorted(os.listdir(place))
    except OSError:
        return []


def _text(path: str) -> str:
    # a link that is down has no speed to read
    try:
        with open(path, errors="replace") as stream:
            return stream.read(200).strip()
    except OSError:
        return ""


def _number(path: str) -> int:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else 0
