"""Which nodes to drain and which to resume. Pure: from alerts and Slurm's nodes to a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..._shared import node_states

# only of this program: other parts of deepopsctl drain with other reasons
PREFIX = node_states.ALERT_PREFIX
WATCHDOG = "Watchdog"


@dataclass(frozen=True)
class Alert:
    """An alert that has not ended. `is_active` is false while it is silenced or inhibited."""

    name: str
    node: str
    drains: bool
    # while it fires, other alerts of its node (of all nodes, without a node) may be missing for lack of data
    blinds: bool
    is_active: bool
    since: str


@dataclass(frozen=True)
class Node:
    """A node in Slurm. `is_healthy`: it answers, and would run jobs if it were not drained."""

    name: str
    drained: bool
    reason: str
    is_healthy: bool

    @property
    def drained_by_alert(self) -> bool:
        """Whether an alert drained it, and the reason has not been changed since."""
        return self.drained and self.reason.startswith(PREFIX)


@dataclass(frozen=True)
class Limits:
    """How many nodes may be drained by alerts at once, and how long a node must be healthy before it is resumed."""

    nodes: int
    resume_after_s: float


@dataclass(frozen=True)
class Decision:
    """`drains` has reasons by node, `waiting` why a node stays drained; `held_back` are those beyond the limit."""

    drains: Mapping[str, str]
    resumes: Sequence[str]
    held_back: Sequence[str]
    drained_by_alert: Sequence[str]
    waiting: Mapping[str, str]


@dataclass
class HealthyTimers:
    """Since when each drained node has been healthy (monotonic clock)."""

    clear: dict[str, float] = field(default_factory=dict)

    def reset(self) -> None:
        """Restart all timers, after a round without an answer."""
        self.clear.clear()


def decide(
    alerts: Sequence[Alert], nodes: Mapping[str, Node], timers: HealthyTimers, limits: Limits, now: float
) -> Decision:
    """One round. The caller has checked that the alerts are complete (the watchdog fires)."""
    drained_by_alert = sorted(name for name, node in nodes.items() if node.drained_by_alert)
    due: dict[str, tuple[str, str]] = {}
    for alert in sorted(alerts, key=lambda each: (each.since, each.node, each.name)):
        known = nodes.get(alert.node)
        if alert.drains and alert.is_active and known and not known.drained:
            due.setdefault(alert.node, (alert.node, PREFIX + alert.name))
    room = max(0, limits.nodes - len(drained_by_alert))
    wanted = list(due.values())
    against = {name: _against(nodes[name], alerts) for name in drained_by_alert}
    resumes = _resumes(against, timers, limits, now)
    return Decision(
        drains=dict(wanted[:room]),
        resumes=resumes,
        held_back=[name for name, _ in wanted[room:]],
        drained_by_alert=drained_by_alert,
        waiting={
            name: why or "all is well, but not for long enough" for name, why in against.items() if name not in resumes
        },
    )


def _against(node: Node, alerts: Sequence[Alert]) -> str:
    """Why a node that an alert drained stays drained; '' for no reason."""
    for alert in alerts:
        if alert.node == node.name and alert.drains:
            return f"{alert.name} has not ended"
        if alert.blinds and alert.node in (node.name, ""):
            return f"{alert.name} fires: its other alerts may be missing for lack of data"
    return "" if node.is_healthy else "Slurm has it as down"


def _resumes(against: Mapping[str, str], timers: HealthyTimers, limits: Limits, now: float) -> list[str]:
    timers.clear = {name: timers.clear.get(name, now) for name, why in against.items() if not why}
    return sorted(name for name, since in timers.clear.items() if now - since >= limits.resume_after_s)
