"""Helpers to build checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deepopsctl.checks.catalogue.doctor import SUITE
from deepopsctl.checks.check import Check, Status
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.slurm.hardware import NodeHardware


# no slots: what is asked for every node is computed once
@dataclass(frozen=True)
class Declared:
    """The nodes as the cluster directory declares them."""

    cluster: Cluster
    hardware: Mapping[str, NodeHardware] = field(default_factory=dict)

    def node(self, name: str) -> Node:
        """A node by its name."""
        return self._nodes[name]

    def roles(self, name: str) -> frozenset[Role]:
        """A node's roles, those that fall to the first controller included."""
        return frozenset(role for role, members in self._members.items() if name in members)

    @cached_property
    def names(self) -> frozenset[str]:
        """All nodes."""
        return frozenset(self._nodes)

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Names by address."""
        return {node.address: node.name for node in self.cluster.nodes if node.address}

    @cached_property
    def _nodes(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.cluster.nodes}

    @cached_property
    def _members(self) -> Mapping[Role, frozenset[str]]:
        return {role: frozenset(node.name for node in self.cluster.with_role(role)) for role in Role}


def passed(name: str, target: str, measured: str, expected: str = "", unit: str = "") -> Check:
    """A passed check."""
    return Check(SUITE, name, target, Status.PASS, measured, expected, unit)


def skipped(name: str, target: str, message: str) -> Check:
    """A skipped check, with the reason."""
    return Check(SUITE, name, target, Status.SKIP, message=message)


def warned(name: str, target: str, message: str, measured: str = "", expected: str = "", unit: str = "") -> Check:
    """A check with a warning."""
    return Check(SUITE, name, target, Status.WARN, measured, expected, unit, message)


def failed(
    name: str, target: str, message: str, measured: str = "", expected: str = "", *, unit: str = "", hint: str = ""
) -> Check:
    """A failed check."""
    return Check(SUITE, name, target, Status.FAIL, measured, expected, unit, message, hint)
