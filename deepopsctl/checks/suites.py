"""The suites of `validate`, by name."""

from __future__ import annotations

SMOKE = "smoke"
SUITES = (SMOKE, "gpu", "storage", "environment", "monitoring")
BURNIN = "burnin"
HA = "ha"
# the site's own
LOCAL = "local"
# load or interrupt the cluster, or do what the site wrote: only where they are listed, never part of `all`
EXPLICIT = (BURNIN, "containers", HA, "hpc", LOCAL, "network", "training", "web")
