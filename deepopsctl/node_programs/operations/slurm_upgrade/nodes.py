"""Nodes while their slurmd is replaced: no job starts there, and they serve in the new release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._shared import hostlist, node_states, slurm_client
from ..._shared.waiting import wait_until

_PAUSE_S = 1.0
Nodes = dict[str, slurm_client.Node]


def drain(names: Sequence[str], reason: str, timeout_s: float) -> dict[str, str]:
    """Drain the nodes that are in service, and wait for the start of those that have just got theirs.

    An old slurmd starts a job by the new programs once they are there, and those do not understand it: the job would
    be held, and the node drained. Returns {name: why} of nodes where a job has not begun in time: they are in service
    again.
    """
    nodes = _nodes(names)
    todo = sorted(name for name, node in nodes.items() if not node_states.is_out(node["state"]))
    if todo:
        _update(todo, "state=drain", "reason=" + reason)
    drained = sorted({*todo, *_drained_for(nodes, reason)})
    jobs = wait_until(lambda: _starting(drained), timeout_s, _PAUSE_S, lambda starting: not starting)
    starting = {
        name: f"job {' '.join(there)} has been starting there for {timeout_s:.0f} s" for name, there in jobs.items()
    }
    if starting:
        resume(sorted(starting), reason)
    return starting


def resume(names: Sequence[str], reason: str) -> list[str]:
    """End the drains for `reason`, and no others; the nodes."""
    mine = _drained_for(_nodes(names), reason)
    if mine:
        _update(mine, "state=resume")
    return mine


def registered(names: Sequence[str], reason: str, version: str, timeout_s: float) -> dict[str, Any]:
    """Wait until the nodes serve in this version, and end the drain for `reason` of each as soon as it does.

    Returns `left`, {name: why} of those that do not serve, and `resumed`, the nodes whose drain was ended.
    """
    seen: set[str] = set()
    resumed: list[str] = []

    def unregistered() -> dict[str, str]:
        left = _unregistered(names, version)
        ready = set(names) - seen - set(left)
        if ready:
            resumed.extend(resume(sorted(ready), reason))
        seen.update(ready)
        return left

    left = wait_until(unregistered, timeout_s, _PAUSE_S, lambda nodes: not nodes)
    return {"left": left, "resumed": sorted(resumed)}


def _unregistered(names: Sequence[str], version: str) -> dict[str, str]:
    try:
        return unregistered_in(slurm_client.nodes(), names, version)
    except slurm_client.NoAnswerError as error:
        return dict.fromkeys(names, str(error))


def unregistered_in(nodes: Nodes, names: Sequence[str], version: str) -> dict[str, str]:
    """Those of the nodes that do not serve in this version, and why."""
    left = {}
    for name in names:
        node = nodes.get(name)
        if node is None:
            left[name] = "slurmctld does not know it"
        elif node_states.flags(node["state"]) & node_states.UNREGISTERED and not _is_set_down(node):
            reason = f" ({node['reason']})" if node["reason"] else ""
            left[name] = f"slurmctld has it as {node['state']}{reason}"
        elif node["version"] != version:
            left[name] = f"its slurmd is {node['version'] or 'of an unknown version'}"
    return left


def _is_set_down(node: slurm_client.Node) -> bool:
    """Registered, and set down by an administrator: it stays so."""
    return node_states.is_only_down(node["state"]) and node_states.is_by_person(node["reason_user"])


def _nodes(names: Sequence[str]) -> Nodes:
    return {name: node for name, node in slurm_client.nodes().items() if name in names}


def _drained_for(nodes: Nodes, reason: str) -> list[str]:
    return sorted(name for name, node in nodes.items() if node_states.is_drained_with(node, reason))


def _starting(names: Sequence[str]) -> dict[str, list[str]]:
    """{node: jobs that have it and have not begun there}."""
    jobs: dict[str, list[str]] = {}
    if names:
        options = ("--all", "--states=CONFIGURING,RUNNING", "--nodelist=" + ",".join(names))
        for job, state, reason, where in slurm_client.jobs("%i|%T|%r|%N", *options):
            # it has its nodes and has not begun there: 22.05 has it as configuring until the prolog has ended
            if state == "CONFIGURING" or (state, reason) == ("RUNNING", "Prolog"):
                for name in set(hostlist.expand(where)) & set(names):
                    jobs.setdefault(name, []).append(job)
    return jobs


def _update(names: Sequence[str], *words: str) -> None:
    slurm_client.require(slurm_client.update("node", names, *words))
