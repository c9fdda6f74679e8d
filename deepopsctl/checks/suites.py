"""The suites of `validate`, by name."""

from __future__ import annotations

SUITES = ("smoke", "gpu", "storage", "environment", "monitoring")
BURNIN = "burnin"
# load or interrupt the cluster: only where they are listed, never part of `all`
EXPLICIT = (BURNIN, "containers", "ha")
