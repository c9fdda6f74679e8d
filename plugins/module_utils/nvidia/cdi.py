"""Whether the CDI specification of a node names the GPUs and the driver that are there."""

from __future__ import annotations

import json
import re

_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-fA-F-]+)")


def stale(specification, driver, listed):
    """Why the specification must be generated again, '' where it must not; `listed` is what `nvidia-smi -L` prints."""
    if not driver:
        # without a driver there is nothing to specify
        return ""
    if not specification:
        return "there is none"
    if driver not in specification:
        return "it is not of driver %s" % driver
    unnamed = [uuid for uuid in _UUID.findall(listed) if uuid not in specification]
    return "it does not name %s" % " ".join(unnamed) if unnamed else ""


def docker_lacks_runtime(settings):
    """Whether Docker's daemon.json (its text) has no runtime `nvidia`. ValueError where Docker could not read it."""
    document = json.loads(settings) if settings.strip() else {}
    if not isinstance(document, dict):
        # as json.loads: the caller asks but whether it can be read
        raise ValueError("it is no object")  # noqa: TRY004 (a fault of the file, not of a type)
    return "nvidia" not in document.get("runtimes", {})
