"""The checks of `validate` and `doctor`, applied to the snapshots: limits and messages are defined in one place."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.checks.check import Check, Status, parse_check
from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.node_programs._shared import command, slurm_output
from deepopsctl.node_programs._slurm_jobs.snapshot import COMMANDS, SlurmSnapshot
from deepopsctl.node_programs.suites.validate_smoke import context
from deepopsctl.text import node_sets
from tests.testinfra.collect import GPUS, Live, Snapshot


def accept(verdicts: Iterable[Mapping[str, object]]) -> None:
    """Fail the test with every failed check, warn of warnings, skip where nothing could be evaluated."""
    checks = [parse_check(one) for one in verdicts]
    assert checks, "nothing was judged"
    failed = [words(check) for check in checks if check.status is Status.FAIL]
    assert not failed, "\n".join(failed)
    for check in checks:
        if check.status is Status.WARN:
            warnings.warn(words(check), stacklevel=2)
    if all(check.status is Status.SKIP for check in checks):
        pytest.skip("; ".join(check.message for check in checks))


def words(check: Check) -> str:
    """A check as one line."""
    return f"{check.name} {check.target}: {check.message or f'{check.measured}, not {check.expected}'}"


def slurm_of(live: Live) -> SlurmSnapshot:
    """The state of the cluster in Slurm as the primary controller reports it, in the smoke suite's form."""
    snapshot = live.snapshots[live.primary]
    if snapshot.silence:
        pytest.skip(f"the controller {snapshot.node} does not answer: {snapshot.silence}")
    answers = {
        name: command.Result(COMMANDS[name][0], text["rc"], text["out"], text["err"], 0.0)
        for name, text in snapshot.commands.items()
        if name in COMMANDS
    }
    return SlurmSnapshot(
        slurm_output.config(answers["config"].output),
        slurm_output.records(answers["nodes"].output, "NodeName"),
        slurm_output.records(answers["partitions"].output, "PartitionName"),
        answers,
    )


def wanted_nodes(live: Live) -> dict[str, context.Node]:
    """Every compute node as cluster.yml and hardware.yml have it."""
    stored = [
        {"names": name, "cpus": known.cpus, "memory_mb": known.memory_mb}
        for name, known in live.declared.hardware.items()
    ]
    return context.nodes(_shared(live)["slurm_nodes"], stored, _names)


def wanted_partitions(live: Live) -> list[context.Partition]:
    """Every partition of cluster.yml, with its deployed nodes."""
    known = [node.name for node in wanted_nodes(live).values() if node.cpus]
    return context.partitions(_shared(live)["slurm_partitions"], known, _names)


def hardware_of(snapshot: Snapshot) -> dict[str, int]:
    """CPUs, memory and GPU files that a compute node has now."""
    record = slurm_output.record(snapshot.out("hardware").splitlines()[0]) if snapshot.out("hardware") else {}
    return {
        "cpus": slurm_output.number(record, "CPUs"),
        "memory_mb": slurm_output.number(record, "RealMemory"),
        "gpu_devices": len(snapshot.devices[GPUS]),
    }


@cache
def doctor_problems(directory: Path) -> tuple[Check, ...]:
    """All checks of one `deepopsctl doctor`; it examines every node at once."""
    tool = Path(sys.executable).parent / "deepopsctl"
    done = subprocess.run(
        [str(tool), "-C", str(directory), "doctor", "--json"], capture_output=True, text=True, timeout=300
    )
    try:
        listed = json.loads(done.stdout)["checks"]
    except ValueError:
        pytest.fail(f"doctor ended with {done.returncode}: {done.stderr}")
    return tuple(parse_check(one) for one in listed)


def _shared(live: Live) -> Mapping[str, Any]:
    """The inventory's variables of the cluster as a whole; a large one has them at its first controller."""
    everything: Any = build_inventory(live.cluster)["all"]
    shared: Mapping[str, Any] = (everything["hosts"][live.primary] or {}).get("deepops_shared") or everything["vars"]
    return shared


def _names(names: str) -> list[str]:
    return list(node_sets.expand(names))
