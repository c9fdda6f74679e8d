"""One thing that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """`exporter` is the name of the scrape job that it belongs to; `address` is HOST:PORT."""

    exporter: str
    address: str
    # besides those that all have: cluster, node, instance
    labels: Mapping[str, str] = field(default_factory=dict)
