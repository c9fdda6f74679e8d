"""The suites of `validate`, by name."""

from __future__ import annotations

SUITES = ("smoke", "gpu", "storage", "environment", "monitoring")
BURNIN = "burnin"
# the site's own
LOCAL = "local"
# load or interrupt the cluster, or do what the site wrote: only where they are listed, never part of `all`
EXPLICIT = (BURNIN, "containers", "ha", "hpc", LOCAL, "network", "training")
