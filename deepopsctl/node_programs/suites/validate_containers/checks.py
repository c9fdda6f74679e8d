"""Checks of this suite; their targets are compute nodes."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "containers"
PODMAN, CHARLIECLOUD, APPTAINER, PYXIS, OCI, REGISTRY = (
    "containers-podman", "containers-charliecloud", "containers-apptainer", "containers-pyxis", "containers-oci",
    "containers-registry",
)  # fmt: skip
DEVICES, STARTS, REMOVED = "containers-devices", "containers-starts", "containers-removed"

# one check, and one that could not be made, without the suite's name
check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)
