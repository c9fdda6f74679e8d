"""What a job could reach outside its allocation: whether Slurm confines jobs, and which GPUs they could open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._shared import checks
from .._shared.checks import PASS, WARN, Check
from .._shared.slurm_output import Record

# by the cgroup, and by the mode of the device's file, which the kernel checks first
DENIED, MODE = "EPERM", "EACCES"
NOT_CONFIGURED = "jobs are not confined here: TaskPlugin has no task/cgroup"


def uses_cgroups(config: Record) -> bool:
    """True when Slurm is set up to confine jobs by cgroups."""
    return "task/cgroup" in config.get("TaskPlugin", "")


def device(data: Mapping[str, Any]) -> str:
    """Which GPUs of the node a job got: Slurm's own index, else the device files it could open."""
    assigned = data.get("env", {}).get("SLURM_STEP_GPUS") or data.get("env", {}).get("SLURM_JOB_GPUS")
    if assigned:
        return str(assigned)
    opened = sorted(name for name, result in data.get("gpus", {}).items() if result not in (DENIED, MODE))
    return ",".join(name.replace("nvidia", "") for name in opened)


def gpus(suite: str, name: str, node: str, with_one: Mapping[str, str], with_none: Mapping[str, str]) -> Check:
    """A job with one GPU can open that device file only, a job without GPUs none."""
    expected = f"1 of {len(with_one)} GPUs"
    reached = sorted(device for device, result in with_one.items() if result not in (DENIED, MODE))
    opened = sorted(device for device, result in with_none.items() if result not in (DENIED, MODE))
    closed = sorted(each for each in {**with_one, **with_none} if MODE in (with_one.get(each), with_none.get(each)))
    if not with_one:
        text = "the job found no /dev/nvidia* at all"
        return checks.failed(suite, name, node, text, "no device files", "1 GPU")
    if len(reached) > 1:
        text = f"a job with one GPU could open {_results(reached, with_one)}"
        return checks.failed(suite, name, node, text, f"{len(reached)} GPUs", expected)
    if opened:
        text = f"a job that asked for no GPU could open {_results(opened, with_none)}"
        return checks.failed(suite, name, node, text, f"{len(opened)} GPUs", "none")
    if closed:
        devices = ", ".join("/dev/" + each for each in closed)
        text = f"not known: the file mode keeps the user from {devices} before the cgroup is asked (EACCES)"
        return checks.check(suite, name, node, WARN, "not tried", expected, message=text)
    if not reached:
        return checks.failed(suite, name, node, "a job with one GPU could not open any", "0 GPUs", expected)
    result = with_one[reached[0]]
    text = "" if result == "OK" else f"no driver behind {reached[0]}: opening it says {result}"
    return checks.check(suite, name, node, PASS, expected, expected, message=text)


def _results(names: list[str], results: Mapping[str, str]) -> str:
    return ", ".join(f"/dev/{name} ({results[name]})" for name in names)
