"""What a job could reach outside its allocation, from what it tried."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence

from .checks import FAIL, PASS, WARN, Check, check, failed, skipped
from .slurmtext import Record

LIMIT_MB = 100
TRY_MB = 300
# by the cgroup, and by the mode of the device's file, which the kernel checks first
DENIED, MODE = "EPERM", "EACCES"
NOT_CONFIGURED = "jobs are not confined here: TaskPlugin has no task/cgroup"


def configured(config: Record, cluster: str) -> Check:
    """Does this cluster confine jobs at all? If not, one warning says so and the trials are skipped."""
    expected = "task/cgroup, ConstrainCores, ConstrainDevices, ConstrainRAMSpace"
    plugins = config.get("TaskPlugin", "")
    if not uses_cgroups(config):
        text = "jobs are not confined: a job can use cores, memory and GPUs of others (TaskPlugin={}, ProctrackType={})"
        text = text.format(plugins or "none", config.get("ProctrackType", "unknown"))
        return check("confinement", cluster, WARN, plugins or "none", expected, message=text)
    keys = ("ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace")
    off = [key for key in keys if config.get(key, "yes").lower() in ("no", "false")]
    if off:
        text = "cgroup.conf leaves jobs unconfined: {}=no".format("=no, ".join(off))
        return check("confinement", cluster, FAIL, "without " + ", ".join(off), expected, message=text)
    return check("confinement", cluster, PASS, plugins, expected)


def uses_cgroups(config: Record) -> bool:
    """True when Slurm is set up to confine jobs by cgroups."""
    return "task/cgroup" in config.get("TaskPlugin", "")


def cores(node: str, tried: Mapping[str, Any]) -> Check:
    """A job with one core is on that core, and the kernel refuses to move it elsewhere."""
    own, others = list(tried.get("own", [])), dict(tried.get("others", {}))
    allocated = int(tried.get("allocated") or 1)
    expected = "{} CPU".format(allocated) if allocated == 1 else "{} CPUs".format(allocated)
    escaped = sorted(cpu for cpu, result in others.items() if result == "OK")
    if escaped:
        text = "a job with {} moved to CPU {} outside its allocation".format(expected, ", ".join(escaped))
        return failed("cpu-confinement", node, text, "{} reachable".format(len(own) + len(escaped)), expected)
    if len(own) > allocated:
        return failed("cpu-confinement", node, "the job sees more CPUs than it was given", len(own), expected)
    if not others:
        return skipped(
            "cpu-confinement", node, "the job was given every CPU of the node: there is none to be kept from"
        )
    return check(
        "cpu-confinement",
        node,
        PASS,
        "{} of {} others tried, all refused".format(len(others), len(others)),
        expected,
    )


def memory(node: str, lines: Sequence[Mapping[str, Any]], stderr: str) -> Check:
    """A job that takes more than its --mem is stopped, or held below it."""
    expected = "stopped near {}".format(LIMIT_MB)
    held = max(int(line.get("held", 0)) for line in lines)
    resident = max(int(line.get("resident", 0)) for line in lines)
    survived = any(line.get("end") for line in lines)
    if survived and resident > LIMIT_MB * 1.5:
        text = "a job with --mem={}M held {} MiB and was not stopped".format(LIMIT_MB, resident)
        return failed("memory-confinement", node, text, resident, expected)
    if survived:
        return check(
            "memory-confinement",
            node,
            PASS,
            resident,
            expected,
            "MiB",
            "kept below its limit, the rest swapped out",
        )
    if held > LIMIT_MB * 2:
        return failed("memory-confinement", node, "the job was stopped too late", held, expected)
    words = ("oom", "out of memory", "killed")
    if not any(word in stderr.lower() for word in words):
        return failed(
            "memory-confinement",
            node,
            "the job ended, but not for its memory: " + stderr.strip()[:200],
            held,
            expected,
        )
    return check("memory-confinement", node, PASS, held, expected, "MiB")


def gpus(node: str, with_one: Mapping[str, str], with_none: Mapping[str, str]) -> Check:
    """A job with one GPU can open that device file only, a job without GPUs none."""
    expected = "1 of {} GPUs".format(len(with_one))
    reached = sorted(name for name, result in with_one.items() if result not in (DENIED, MODE))
    opened = sorted(name for name, result in with_none.items() if result not in (DENIED, MODE))
    closed = sorted(name for name in {**with_one, **with_none} if MODE in (with_one.get(name), with_none.get(name)))
    if not with_one:
        return failed("gpu-confinement", node, "the job found no /dev/nvidia* at all", "no device files", "1 GPU")
    if len(reached) > 1:
        text = "a job with one GPU could open {}".format(_results(reached, with_one))
        return failed("gpu-confinement", node, text, "{} GPUs".format(len(reached)), expected)
    if opened:
        text = "a job that asked for no GPU could open {}".format(_results(opened, with_none))
        return failed("gpu-confinement", node, text, "{} GPUs".format(len(opened)), "none")
    if closed:
        text = "not known: the file mode keeps the user from {} before the cgroup is asked (EACCES)"
        names = ", ".join("/dev/" + name for name in closed)
        return check("gpu-confinement", node, WARN, "not tried", expected, message=text.format(names))
    if not reached:
        return failed("gpu-confinement", node, "a job with one GPU could not open any", "0 GPUs", expected)
    text = (
        ""
        if with_one[reached[0]] == "OK"
        else "no driver behind {}: opening it says {}".format(reached[0], with_one[reached[0]])
    )
    return check("gpu-confinement", node, PASS, "1 of {} GPUs".format(len(with_one)), expected, message=text)


def _results(names: List[str], results: Mapping[str, str]) -> str:
    return ", ".join("/dev/{} ({})".format(name, results[name]) for name in names)
