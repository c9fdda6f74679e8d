"""What one node reports about itself: its services, its munge, its hardware, its Slurm."""

from __future__ import annotations

import glob
import re
import shutil
from collections.abc import Sequence
from typing import Any

from ..._shared import command, slurm_client
from ..._shared.checks import FAIL, PASS, Check, one_line
from . import munge
from .context import check, failed, skipped


def services(node: str, units: Sequence[str]) -> tuple[list[Check], dict[str, str]]:
    """The units that this node's roles need are active; and the state of each."""
    if not units:
        return [], {}
    answer = command.run(["systemctl", "is-active", *units], 10)
    words = answer.output.split()
    if len(words) != len(units):
        return [skipped("services", node, "systemctl does not answer: " + one_line(answer.message))], {}
    states = dict(zip(units, words))
    bad = {unit: word for unit, word in states.items() if word != "active"}
    text = ""
    if bad:
        shown = ", ".join(f"{unit} is {word}" for unit, word in bad.items())
        text = f"{shown}: systemctl status {' '.join(bad)}"
    measured = ", ".join(unit for unit in units if unit not in bad) or "none"
    return [
        check("services", node, FAIL if bad else PASS, measured + " active", ", ".join(units) + " active", message=text)
    ], states


def munge_local(node: str) -> tuple[Check, dict[str, str]]:
    """A credential made here decodes here; and one for other nodes to decode."""
    made = munge.encode()
    if not made["credential"]:
        return failed("munge-local", node, "munge: " + made["error"], "no credential", "decodes"), made
    status = munge.decode(made["credential"])
    good = status.startswith(munge.GOOD)
    result = check(
        "munge-local",
        node,
        PASS if good else FAIL,
        "decodes" if good else status,
        "decodes",
        message="" if good else "unmunge: " + status,
    )
    # a credential decodes once on each host: the one that travels must be fresh for this host as well
    return result, munge.encode()


def slurm_version() -> str:
    """The version of the installed slurmd, else of the client tools; '' without either."""
    for argv in (["slurmd", "-V"], slurm_client.VERSION):
        answer = command.run(argv, 10)
        match = re.search(r"\d+\.\d+\S*", answer.output)
        if answer.ok and match:
            return match.group(0)
    return ""


def hardware() -> dict[str, Any]:
    """CPUs, memory (MiB) as slurmd finds them now, and the GPU device files."""
    text = command.run(["slurmd", "-C"], 10).output
    fields = dict(re.findall(r"(\w+)=(\S+)", text))
    return {
        "cpus": int(fields.get("CPUs", "0")),
        "memory_mb": int(fields.get("RealMemory", "0")),
        "gpu_devices": len(glob.glob("/dev/nvidia[0-9]*")),
        "nvidia_smi": shutil.which("nvidia-smi") is not None,
    }


def report(node: str, units: Sequence[str], *, compute: bool) -> tuple[list[Check], dict[str, Any]]:
    """The node's checks, and facts that are compared with those of other nodes."""
    checks, states = services(node, units)
    local, credential = munge_local(node)
    facts: dict[str, Any] = {"munge": credential}
    if compute:
        facts.update(hardware(), slurm_version=slurm_version())
        if "slurmd" in states:
            facts["slurmd_active"] = states["slurmd"] == "active"
    return [*checks, local], facts
