"""Short ways to write a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deepopsctl.checks import Check, Status
from deepopsctl.doctor.catalogue import SUITE
from deepopsctl.hardware import NodeHardware
from deepopsctl.model import Cluster, Node


@dataclass(frozen=True, slots=True)
class Declared:
    """What the cluster directory says the machines are."""

    cluster: Cluster
    hardware: Mapping[str, NodeHardware] = field(default_factory=dict)

    def node(self, name: str) -> Node:
        """A node by its name."""
        return next(node for node in self.cluster.nodes if node.name == name)

    @property
    def names(self) -> frozenset[str]:
        """All nodes."""
        return frozenset(node.name for node in self.cluster.nodes)


def passed(name: str, target: str, measured: str, expected: str = "", unit: str = "") -> Check:
    """It is as it should be."""
    return Check(SUITE, name, target, Status.PASS, measured, expected, unit)


def skipped(name: str, target: str, message: str) -> Check:
    """It could not be looked at, and why."""
    return Check(SUITE, name, target, Status.SKIP, message=message)


def warned(name: str, target: str, message: str, measured: str = "", expected: str = "", unit: str = "") -> Check:
    """It works, and somebody should know."""
    return Check(SUITE, name, target, Status.WARN, measured, expected, unit, message)


def failed(
    name: str, target: str, message: str, measured: str = "", expected: str = "", *, unit: str = "", hint: str = ""
) -> Check:
    """It is not as it should be."""
    return Check(SUITE, name, target, Status.FAIL, measured, expected, unit, message, hint)
