"""The header of files that deepopsctl manages."""

from __future__ import annotations

MANAGED_HEADER = "# Written by deepopsctl; the next deploy overwrites changes made here.\n"
MANAGED_HEADER_FROM_CLUSTER = (
    "# Written by deepopsctl from cluster.yml; the next deploy overwrites changes made here.\n"
)
