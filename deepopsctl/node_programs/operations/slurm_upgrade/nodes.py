"""Nodes while their slurmd is replaced: no job starts there, and they serve in the new release."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..._shared import command, hostlist, slurm_output
from ..._shared.node_states import flags
from . import UpgradeError

_PAUSE_S, _ANSWER_S = 1.0, 30
_UNFIT = re.compile(r"DOWN|UNKNOWN|INVAL|NOT_RESPONDING|NO_RESPOND|\*")
# registered, and set down by somebody: it stays so
_SET_DOWN = re.compile(r"DOWN(?:\+DRAIN)?")
# a job that has its nodes and has not begun there: 22.05 has it as configuring until the prolog has ended
_STARTING = re.compile(r"([^|]+)\|(?:CONFIGURING\|.*|RUNNING\|Prolog)\|([^|]+)")
Nodes = dict[str, dict[str, Any]]


def drain(names: Sequence[str], reason: str, timeout_s: float) -> dict[str, str]:
    """Let no job start on the nodes that are in service, and wait for the start of those that have just got theirs.

    An old slurmd starts a job by the new programs once they are there, and those do not understand it: the job would
    be held, and the node drained. Returns {name: why} of nodes where a job has not begun in time: they are in service
    again.
    """
    nodes = _nodes(names)
    out = {name for name, node in nodes.items() if {"DRAIN", "DOWN"} & flags(node["state"])}
    todo = sorted(set(nodes) - out)
    if todo:
        _update(todo, "state=drain", "reason=" + reason)
    drained = sorted({*todo, *_drained_for(nodes, reason)})
    deadline = time.monotonic() + timeout_s
    jobs = _starting(drained)
    while jobs and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        jobs = _starting(drained)
    starting = {
        name: f"job {' '.join(there)} has been starting there for {timeout_s:.0f} s" for name, there in jobs.items()
    }
    if starting:
        resume(sorted(starting), reason)
    return starting


def resume(names: Sequence[str], reason: str) -> list[str]:
    """End the drains for `reason`, and nobody else's; the nodes."""
    mine = _drained_for(_nodes(names), reason)
    if mine:
        _update(mine, "state=resume")
    return mine


def registered(names: Sequence[str], reason: str, version: str, timeout_s: float) -> dict[str, Any]:
    """Wait until the nodes serve in this version, and end the drain for `reason` of each as soon as it does.

    Returns `left`, {name: why} of those that do not serve, and `resumed`, the nodes whose drain was ended.
    """
    deadline = time.monotonic() + timeout_s
    seen: set[str] = set()
    resumed: list[str] = []
    while True:
        left = _unregistered(names, version)
        ready = set(names) - seen - set(left)
        if ready:
            resumed += resume(sorted(ready), reason)
        seen |= ready
        if not left or time.monotonic() > deadline:
            return {"left": left, "resumed": sorted(resumed)}
        time.sleep(_PAUSE_S)


def _unregistered(names: Sequence[str], version: str) -> dict[str, str]:
    shown = command.run(["scontrol", "--oneliner", "show", "nodes"], _ANSWER_S, env=command.slurm_environment())
    return unregistered_in(shown.output, names, version) if shown.ok else dict.fromkeys(names, shown.failure)


def unregistered_in(shown: str, names: Sequence[str], version: str) -> dict[str, str]:
    """The same from the output of `scontrol --oneliner show nodes`."""
    nodes = {node["name"]: node for node in slurm_output.nodes(shown)}
    left = {}
    for name in names:
        node = nodes.get(name)
        if node is None:
            left[name] = "slurmctld does not know it"
        elif _UNFIT.search(node["state"]) and not _is_set_down(node):
            reason = f" ({node['reason']})" if node["reason"] else ""
            left[name] = f"slurmctld has it as {node['state']}{reason}"
        elif node["version"] != version:
            left[name] = f"its slurmd is {node['version'] or 'of an unknown version'}"
    return left


def _is_set_down(node: dict[str, Any]) -> bool:
    return bool(_SET_DOWN.fullmatch(node["state"])) and node["reason_user"] not in ("", "slurm")


def _nodes(names: Sequence[str]) -> Nodes:
    shown = _run("scontrol", "--oneliner", "show", "nodes")
    return {node["name"]: node for node in slurm_output.nodes(shown) if node["name"] in names}


def _drained_for(nodes: Mapping[str, Mapping[str, Any]], reason: str) -> list[str]:
    return sorted(name for name, node in nodes.items() if "DRAIN" in flags(node["state"]) and node["reason"] == reason)


def _starting(names: Sequence[str]) -> dict[str, list[str]]:
    """{node: jobs that have it and have not begun there}."""
    jobs: dict[str, list[str]] = {}
    if names:
        words = ["--noheader", "--all", "--states=CONFIGURING,RUNNING", "--format=%i|%T|%r|%N"]
        for line in _run("squeue", *words, "--nodelist=" + ",".join(names)).splitlines():
            match = _STARTING.fullmatch(line.strip())
            job, where = match.groups() if match else ("", "")
            for name in set(hostlist.expand(where)) & set(names):
                jobs.setdefault(name, []).append(job)
    return jobs


def _update(names: Sequence[str], *words: str) -> None:
    _run("scontrol", "update", "nodename=" + ",".join(names), *words)


def _run(*words: str) -> str:
    done = command.run_merged(words, _ANSWER_S, env=command.slurm_environment())
    if not done.ok:
        raise UpgradeError(f"{' '.join(words[:2])}: {' '.join(done.failure.split())}")
    return done.output
