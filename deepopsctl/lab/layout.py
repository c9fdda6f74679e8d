"""Which nodes a lab has: their names, roles, addresses and GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from deepopsctl.errors import InputError, Problem
from deepopsctl.model.cluster import Gpus, Role

DEFAULT_OS = "debian13"
MAX_GPUS = 16

ROLE_ORDER = (Role.CONTROLLER, Role.COMPUTE, Role.LOGIN)

# Fixed places in the lab's own /24, so that a node keeps its address and a person recognizes nodes by it.
CONTROLLER_HOST = 10
LOGIN_BASE = 10
COMPUTE_BASE = 100

_LAB_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_GPU_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,30}")


@dataclass(frozen=True, slots=True)
class LabRequest:
    """The options of `lab up`. Empty values: those of the existing lab, or the defaults."""

    name: str
    compute: int
    login: int
    os: str = ""
    gpus: Gpus | None = None
    sudo_asks: bool = False
    single: bool = False
    monitoring: bool = False


@dataclass(frozen=True, slots=True)
class LabNode:
    """One node of a lab; `host` is its place in the lab's network, `also` what it is besides its role."""

    name: str
    role: Role
    host: int
    gpus: Gpus | None = None
    also: tuple[Role, ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """Everything the node is for."""
        return (self.role, *self.also)

    def address(self, network: IPv4Network) -> IPv4Address:
        """The node's address in the lab's network."""
        return network.network_address + self.host


def parse_gpus(text: str) -> Gpus:
    """Read `TYPE:COUNT`; ValueError says what is wrong."""
    gpu_type, _, count = text.partition(":")
    if not _GPU_TYPE.fullmatch(gpu_type) or not count.isascii() or not count.isdigit():
        raise ValueError(f"{text!r} is not TYPE:COUNT, for example h100:2")
    if not 1 <= int(count) <= MAX_GPUS:
        raise ValueError(f"{text!r}: a node can have 1 to {MAX_GPUS} simulated GPUs")
    return Gpus(gpu_type, int(count))


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a lab."""
    if not _LAB_NAME.fullmatch(name):
        raise InputError.single(
            "--name",
            f"{name!r} cannot name a lab",
            "use lower-case letters, digits and -, at most 31, a letter first",
        )


def plan_nodes(request: LabRequest) -> tuple[LabNode, ...]:
    """The requested nodes: one controller, then compute nodes, then login nodes; or one node with all roles."""
    if request.single:
        return (LabNode("ctl1", Role.CONTROLLER, CONTROLLER_HOST, request.gpus, (Role.COMPUTE,)),)
    prefix = "gpu" if request.gpus else "cn"
    compute = [
        LabNode(f"{prefix}{i:02d}", Role.COMPUTE, COMPUTE_BASE + i, request.gpus) for i in range(1, request.compute + 1)
    ]
    login = [LabNode(f"login{i}", Role.LOGIN, LOGIN_BASE + i) for i in range(1, request.login + 1)]
    return (LabNode("ctl1", Role.CONTROLLER, CONTROLLER_HOST), *compute, *login)


def in_order(nodes: Iterable[LabNode]) -> tuple[LabNode, ...]:
    """Nodes as `plan_nodes` orders them."""
    return tuple(sorted(nodes, key=lambda node: (ROLE_ORDER.index(node.role), node.host)))


def contradictions(
    request: LabRequest, *, os: str, gpus: Gpus | None, sudo_asks: bool, single: bool
) -> tuple[Problem, ...]:
    """The options of a request that contradict an existing lab with these properties."""
    problems = []
    hint = f"`deepopsctl lab down --name {request.name}` first, or choose another --name"
    if request.os and request.os != os:
        problems.append(Problem("--os", f"lab {request.name!r} runs {os}", hint))
    if request.gpus and request.gpus != gpus:
        has = f"{gpus.type}:{gpus.count} on its compute nodes" if gpus else "no GPUs"
        problems.append(Problem("--gpus", f"lab {request.name!r} has {has}", hint))
    if request.single and not single:
        problems.append(Problem("--single", f"the controller of lab {request.name!r} does not compute", hint))
    if request.sudo_asks and not sudo_asks:
        problems.append(Problem("--sudo-password", f"sudo asks for no password in lab {request.name!r}", hint))
    return tuple(problems)


def render_node_list(name: str, user: str, nodes: Iterable[tuple[LabNode, str]], *, monitoring: bool = False) -> str:
    """The node list that `init --from` reads, in cluster.yml's own form; nodes come with their addresses.

    A lab lives for a few minutes: it is monitored only with --monitoring. Grafana has no package in Debian, and
    simulated GPUs have no driver: each would raise an alert.
    """
    watched = "monitoring_enabled: true, grafana_enabled: false, monitoring_gpu_exporter: none"
    settings = watched if monitoring else "monitoring_enabled: false"
    lines = [
        f"# The nodes of lab {name!r}, written by `deepopsctl lab up`.",
        "schema: 1",
        f"settings: {{{settings}}}",
        f"cluster: {{name: {name}, user: {user}}}",
        "nodes:",
    ]
    for node, address in nodes:
        gpus = f", gpus: {{type: {node.gpus.type}, count: {node.gpus.count}}}" if node.gpus else ""
        lines.append(f'  - {{names: "{node.name}", addresses: "{address}", roles: [{", ".join(node.roles)}]{gpus}}}')
    return "\n".join(lines) + "\n"
