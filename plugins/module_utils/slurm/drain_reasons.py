"""How deepopsctl marks what it does to nodes in Slurm: it ends its own drains, and nobody else's."""

from __future__ import annotations

PREFIX = "deepopsctl: "
# of node add, remove and replace: these end no other drains
NODE_PREFIX = PREFIX + "node "
# of the program that drains nodes by alerts
ALERT_PREFIX = PREFIX + "alert "
# the reservation in which new nodes are validated
RESERVATION = "deepopsctl-trial"


def drain_reason(text: str) -> str:
    """The reason as Slurm gets it; scontrol takes a double quote at its end for its own."""
    return PREFIX + " ".join(text.replace('"', "'").split())
