"""Do Slurm's nodes and partitions agree with what cluster.yml and hardware.yml describe?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..._shared import node_states, slurm_output
from ..._shared.checks import FAIL, PASS, WARN, Check, one_line
from ..._shared.slurm_output import Record
from ..._slurm_jobs.snapshot import SlurmSnapshot
from .context import Inputs, Node, Partition, Reports, check, failed, skipped

# a kernel may report a little more or less memory after an update
MEMORY_SLACK = 0.02
LEAST_SHARE = 0.75


def verify_state(inputs: Inputs, snapshot: SlurmSnapshot, *, reserved: bool) -> list[Check]:
    """State and counts of nodes and partitions, and the nodes' versions; `reserved` where jobs run in a reservation."""
    if not snapshot.answered:
        reason = "slurmctld does not answer"
        unknown = [skipped("node-state", name, reason) for name in inputs.tested]
        return [*unknown, *(skipped("partition", entry.name, reason) for entry in inputs.partitions)]
    wanted = {name: node for name, node in inputs.wanted.items() if name in inputs.tested}
    return [
        *node_checks(wanted, snapshot.nodes, inputs.reports, reserved=reserved),
        *partition_checks(inputs.partitions, snapshot.partitions, snapshot.nodes),
        *versions(inputs, snapshot),
    ]


def controller_checks(cluster: str, snapshot: SlurmSnapshot) -> list[Check]:
    """slurmctld and slurmdbd answer."""
    checks = [
        check(
            "controller-answers",
            host,
            PASS if word == "UP" else FAIL,
            word.lower(),
            "up",
            message="" if word == "UP" else f"slurmctld ({role}) does not answer",
        )
        for role, host, word in re.findall(r"Slurmctld\(([^)]*)\) at (\S+) is (\w+)", snapshot.answers["ping"].output)
    ]
    if not checks:
        text = "slurmctld does not answer: " + one_line(snapshot.answers["ping"].message)
        checks = [check("controller-answers", cluster, FAIL, "no answer", "up", message=text)]
    return [*checks]


def versions(inputs: Inputs, snapshot: SlurmSnapshot) -> list[Check]:
    """Every compute node runs the Slurm version of its controller."""
    want = snapshot.config.get("SLURM_VERSION", "")
    checks = []
    for name in inputs.tested:
        has = str(inputs.report(name).get("slurm_version", ""))
        if has and want:
            text = "" if has == want else "slurmd differs from the controller"
            checks.append(check("slurm-version", name, PASS if has == want else FAIL, has, want, message=text))
    return checks


def node_state(name: str, node: Record | None, *, reserved: bool) -> Check:
    """Registered, answering, not drained; a failure carries Slurm's own reason."""
    expected = "idle, mixed or allocated"
    if node is None:
        return failed("node-state", name, "Slurm does not know this node", "not registered", expected)
    state = node.get("State", "UNKNOWN")
    reason = slurm_output.reason(node)
    flags = node_states.flags(state)
    if flags & node_states.NO_JOBS:
        text = f"Slurm's reason: {reason}" if reason else "Slurm gives no reason"
        if "NOT_RESPONDING" in flags:
            text += "; slurmd does not answer"
        return failed("node-state", name, text, state.lower(), expected)
    # a node on trial is reserved for these very jobs
    later = node_states.JOBS_LATER - ({"RESERVED"} if reserved else set())
    status = WARN if flags & later else PASS
    return check("node-state", name, status, state.lower(), expected, message=reason)


def node_cpus(want: Node, node: Record, report: Mapping[str, Any]) -> Check:
    """CPUs: what Slurm schedules, what hardware.yml has, what slurmd finds on the node today."""
    has = slurm_output.number(node, "CPUTot")
    if not want.cpus:
        return skipped("node-cpus", want.name, "hardware.yml does not know this node")
    if has != want.cpus:
        return failed(
            "node-cpus",
            want.name,
            "Slurm schedules another number of CPUs than hardware.yml has",
            has,
            want.cpus,
        )
    real = int(report.get("cpus") or has)
    if real < has:
        return failed("node-cpus", want.name, "the node has fewer CPUs today than hardware.yml says", real, want.cpus)
    return check("node-cpus", want.name, PASS, has, want.cpus)


def node_memory(want: Node, node: Record, report: Mapping[str, Any]) -> Check:
    """Memory that Slurm may hand out: never more than there is, not much less."""
    name, has = want.name, slurm_output.number(node, "RealMemory")
    if not want.memory_mb:
        return skipped("node-memory", name, "hardware.yml does not know this node")
    expected = f"{'' if want.exact_memory else 'at most '}{want.memory_mb}"
    status, message = PASS, ""
    real = int(report.get("memory_mb") or 0)
    if want.exact_memory and has != want.memory_mb:
        status, message = FAIL, "Slurm has another RealMemory than cluster.yml sets"
    elif has > want.memory_mb:
        status, message = FAIL, "Slurm promises jobs more memory than hardware.yml has"
    elif real and has > real * (1 + MEMORY_SLACK):
        status, message = FAIL, f"the node has {real} MiB today, less than Slurm promises jobs"
    elif has < want.memory_mb * LEAST_SHARE:
        status, message = WARN, "much of the node's memory is not given to jobs"
    return check("node-memory", name, status, has, expected, "MiB", message)


def node_gpus(want: Node, node: Record, report: Mapping[str, Any]) -> Check:
    """GPUs that Slurm schedules, their type, and the device files the node has."""
    measured, expected = _gpus_text(node.get("Gres", "")), _gpus_text(want.gres)
    if not want.gres and want.gpus:
        expected = f"{want.gpu_type or 'gpu'}:{want.gpus}"
    if sorted(measured.split("+")) != sorted(expected.split("+")):
        return failed(
            "node-gpus", want.name, "Slurm schedules other GPUs than cluster.yml declares", measured, expected
        )
    devices = report.get("gpu_devices")
    # slices of a GPU (MIG: `1g.10gb`) that are declared as if they were GPUs share its device file
    sliced = "g." in want.gpu_type
    if want.gpus and devices is not None and int(devices) < want.gpus and not sliced:
        text = "the node has fewer GPU device files (/dev/nvidia*) than GPUs declared"
        return failed("node-gpus", want.name, text, f"{devices} device files", expected)
    return check("node-gpus", want.name, PASS, measured, expected)


def _gpus_text(gres: str) -> str:
    return "+".join(f"{name or 'gpu'}:{count}" for name, count in slurm_output.gpus(gres).items()) or "none"


def node_checks(
    wanted: Mapping[str, Node], nodes: Mapping[str, Record], reports: Reports, *, reserved: bool
) -> list[Check]:
    """State and counts of every node."""
    checks = []
    for name, want in wanted.items():
        node, report = nodes.get(name), reports.get(name, {})
        checks.append(node_state(name, node, reserved=reserved))
        if node is not None:
            checks += [
                node_cpus(want, node, report),
                node_memory(want, node, report),
                node_gpus(want, node, report),
            ]
    return checks


def partition_checks(wanted: list[Partition], has: Mapping[str, Record], nodes: Mapping[str, Record]) -> list[Check]:
    """Every partition of cluster.yml: there, up, with its nodes, default flag and time limit."""
    checks = [_partition(want, has.get(want.name), _members(want.name, nodes)) for want in wanted]
    unknown = sorted(set(has) - {want.name for want in wanted})
    checks += [
        check(
            "partition",
            name,
            WARN,
            "in Slurm",
            "not in cluster.yml",
            message="Slurm has a partition that cluster.yml does not name",
        )
        for name in unknown
    ]
    return checks


def _members(partition: str, nodes: Mapping[str, Record]) -> list[str]:
    return [name for name, node in nodes.items() if partition in node.get("Partitions", "").split(",")]


def _partition(want: Partition, has: Record | None, members: list[str]) -> Check:
    if has is None:
        return failed("partition", want.name, "Slurm has no such partition", "missing", "up")
    wrong: dict[str, str] = {}
    if has.get("State") != "UP":
        wrong["state"] = f"state {has.get('State')}, not UP"
    missing = [name for name in want.nodes if name not in members]
    extra = [name for name in members if name not in want.nodes]
    if missing:
        wrong["missing"] = f"lacks {_some(missing)}"
    if extra:
        wrong["extra"] = f"has {_some(extra)} in addition"
    if (has.get("Default") == "YES") != want.default:
        wrong["default"] = "is default" if not want.default else "is not default"
    if slurm_output.minutes(has.get("MaxTime", "")) != want.minutes:
        limit = slurm_output.clock(want.minutes) if want.minutes is not None else "UNLIMITED"
        wrong["time"] = f"time limit {has.get('MaxTime')}, not {limit}"
    expected = f"{len(want.nodes)} nodes, up"
    status = FAIL if wrong else PASS
    return check(
        "partition",
        want.name,
        status,
        f"{len(members)} nodes, {has.get('State', '').lower()}",
        expected,
        message="; ".join(wrong.values()),
    )


def _some(names: list[str], most: int = 5) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
