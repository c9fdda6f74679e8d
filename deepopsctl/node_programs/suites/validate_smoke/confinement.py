"""Cores and memory that a job could reach outside its allocation, from what it tried."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..._shared import hostlist
from ..._shared.checks import FAIL, PASS, WARN, Check
from ..._shared.slurm_output import Record
from ..._slurm_jobs import confinement, placement, probe_jobs
from .context import Context, check, failed, skipped

LIMIT_MB = 100
TRY_MB = 300
# srun: error: gpu[01-02]: tasks 0-1: Out Of Memory
_NAMING = re.compile(r"srun: error: (\S+): tasks? ")


def configured(config: Record, cluster: str) -> Check:
    """Does this cluster confine jobs at all? If not, one warning says so and the trials are skipped."""
    expected = "task/cgroup, ConstrainCores, ConstrainDevices, ConstrainRAMSpace"
    plugins = config.get("TaskPlugin", "") or "none"
    if not confinement.uses_cgroups(config):
        shown = f"TaskPlugin={plugins}, ProctrackType={config.get('ProctrackType', 'unknown')}"
        text = f"jobs are not confined: a job can use cores, memory and GPUs of others ({shown})"
        return check("confinement", cluster, WARN, plugins, expected, message=text)
    keys = ("ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace")
    off = [key for key in keys if config.get(key, "yes").lower() in ("no", "false")]
    if off:
        text = f"cgroup.conf leaves jobs unconfined: {'=no, '.join(off)}=no"
        return check("confinement", cluster, FAIL, "without " + ", ".join(off), expected, message=text)
    return check("confinement", cluster, PASS, plugins, expected)


def cores(node: str, tried: Mapping[str, Any]) -> Check:
    """A job with one core is on that core, and the kernel refuses to move it elsewhere."""
    own, others = list(tried.get("own", [])), dict(tried.get("others", {}))
    allocated = int(tried.get("allocated") or 1)
    expected = f"{allocated} CPU" if allocated == 1 else f"{allocated} CPUs"
    escaped = sorted(cpu for cpu, result in others.items() if result == "OK")
    if escaped:
        text = f"a job with {expected} moved to CPU {', '.join(escaped)} outside its allocation"
        return failed("cpu-confinement", node, text, f"{len(own) + len(escaped)} reachable", expected)
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
        f"{len(others)} of {len(others)} others tried, all refused",
        expected,
    )


def memory(node: str, lines: Sequence[Mapping[str, Any]], stderr: str) -> Check:
    """A job that takes more than its --mem is stopped, or held below it."""
    expected = f"stopped near {LIMIT_MB}"
    held = max(int(line.get("held", 0)) for line in lines)
    resident = max(int(line.get("resident", 0)) for line in lines)
    survived = any(line.get("end") for line in lines)
    if survived and resident > LIMIT_MB * 1.5:
        text = f"a job with --mem={LIMIT_MB}M held {resident} MiB and was not stopped"
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
    # the last one is what a shell around the job makes of SIGKILL
    words = ("oom", "out of memory", "killed", "exit code 137")
    output = of_node(node, stderr)
    if not any(word in output.lower() for word in words):
        return failed(
            "memory-confinement",
            node,
            "the job ended, but not for its memory: " + output.strip()[:200],
            held,
            expected,
        )
    return check("memory-confinement", node, PASS, held, expected, "MiB")


def of_node(node: str, stderr: str) -> str:
    """What srun says of a node; all that names no other one where it says nothing of it."""
    lines = [(_NAMING.match(line), line) for line in stderr.splitlines()]
    own = [line for match, line in lines if match and node in _expand(match.group(1))]
    return "\n".join(own or [line for match, line in lines if not match])


def _expand(names: str) -> Sequence[str]:
    try:
        return hostlist.expand(names)
    except hostlist.HostlistError:
        return [names]


def verify_memory_limit(context: Context) -> list[Check]:
    """Jobs that take more memory than they asked for, on every node that answered."""
    names = context.names
    if not confinement.uses_cgroups(context.snapshot.config):
        return [skipped("memory-confinement", name, confinement.NOT_CONFIGURED) for name in names]
    answers = probe_jobs.ask(
        context.session,
        "memory",
        placement.place(names, context.snapshot.nodes, context.snapshot.partitions),
        probe_jobs.argv("memory", str(TRY_MB)),
        extra=["--kill-on-bad-exit=0"],
    )
    checks = []
    for name in names:
        if name in answers.lines:
            checks.append(memory(name, answers.lines[name], answers.stderr))
        else:
            what = answers.troubles[name]
            checks.append(check("memory-confinement", name, what.status, message=what.message))
    return checks
