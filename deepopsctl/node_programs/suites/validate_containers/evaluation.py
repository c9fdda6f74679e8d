"""What the answer of a node's job means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared.checks import FAIL, PASS, Check
from . import checks
from .checks import check

# Podman maps root of the container to the user, and all others to subordinate ids
LEAST_IDS = 65_536
OPENED, DENIED = "opened", ("Operation not permitted", "Permission denied")
_NAMES = {
    "podman": checks.PODMAN,
    "charliecloud": checks.CHARLIECLOUD,
    "apptainer": checks.APPTAINER,
    "pyxis": checks.PYXIS,
    "oci": checks.OCI,
    "registry": checks.REGISTRY,
}
# in the others a user has the own id alone
_WITH_IDS = ("podman", "registry")


def evaluate(node: str, engines: Sequence[str], data: Mapping[str, Any], gpus: int) -> Iterator[Check]:
    """The checks of one node; `gpus` is what its job has asked for."""
    errors, outside = data["errors"], data["outside"]
    tried = [*engines, *(["registry"] if "registry" in {**data, **errors} else [])]
    for engine in tried:
        if fault := errors.get("tree") or errors.get(engine):
            yield check(_NAMES[engine], node, FAIL, "not started", "started", message=str(fault))
        else:
            yield _engine(_NAMES[engine], node, data[engine], outside, ids=LEAST_IDS if engine in _WITH_IDS else 0)
    inside = {engine: data[engine]["devices"] for engine in engines if engine in data}
    if inside and outside["devices"]:
        yield _devices(node, inside, gpus)
    if "starts" in data:
        yield _starts(node, data["starts"])


def _engine(name: str, node: str, inside: Mapping[str, Any], outside: Mapping[str, Any], ids: int) -> Check:
    expected = f"cores {outside['cpus']}"
    if inside["ids"] == outside["ids"]:
        text = "the command ran outside of a container: Slurm ignores --container where it has no oci.conf"
        return check(name, node, FAIL, "no container", expected, message=text)
    if inside["cpus"] != outside["cpus"]:
        text = "a container has other cores than its job: is it started by a service outside of the job?"
        return check(name, node, FAIL, f"cores {inside['cpus'] or 'unknown'}", expected, message=text)
    if inside["ids"] < ids:
        text = "the user has no subordinate ids on this node: see /etc/subuid there, and deploy environment"
        return check(name, node, FAIL, f"{inside['ids']} ids", f"{ids} ids", message=text)
    return check(name, node, PASS, expected, expected)


def _devices(node: str, inside: Mapping[str, Mapping[str, str]], gpus: int) -> Check:
    """Each engine opens as many GPUs as the job has; another error than a refusal is a GPU without a driver."""
    expected = f"{gpus} of the node's GPUs"
    for engine, outputs in inside.items():
        reached = sorted(device for device, words in outputs.items() if not words.endswith(DENIED))
        if len(reached) != gpus:
            words = "; ".join(f"{device}: {outputs[device]}" for device in sorted(outputs))
            text = f"{engine}: a job with {gpus} GPU: {words or 'no device files in the container'}"
            return check(checks.DEVICES, node, FAIL, f"{len(reached)} GPUs", expected, message=text)
    return check(checks.DEVICES, node, PASS, expected, expected)


def _starts(node: str, starts: Mapping[str, Any]) -> Check:
    asked, started = starts["asked"], starts["started"]
    text = f"in {starts['seconds']} s" + (f"; {starts['words']}" if started < asked else "")
    return check(checks.STARTS, node, PASS if started == asked else FAIL, started, asked, "containers", text)
