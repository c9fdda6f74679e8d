"""The first line of a file that deepopsctl writes: whose it is, and what becomes of changes."""

from __future__ import annotations

MANAGED_HEADER = "# Written by deepopsctl; the next deploy overwrites changes made here.\n"
MANAGED_HEADER_FROM_CLUSTER = (
    "# Written by deepopsctl from cluster.yml; the next deploy overwrites changes made here.\n"
)
