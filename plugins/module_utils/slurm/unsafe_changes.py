"""Which changes of slurm.conf Slurm can't make under the jobs that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import client as slurm_client
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.effects import CONTAINERS, Change, Effect
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.hostlist import fold

# jobs that hold nodes; what becomes of those that wait is in waiting_jobs.py
HOLDING = "--states=RUNNING,COMPLETING,SUSPENDED,CONFIGURING"


def refusals(changes: Iterable[Change], ask: Callable[..., Any] = slurm_client.ask) -> list[tuple[str, str]]:
    """(message, hint) for each change that would end or forget jobs; `ask` runs a command."""
    problems = []
    for change in changes:
        if change.effect == Effect.REFUSED:
            hint = "put the old value back; moving a live cluster's name, state or login is not supported"
            problems.append((f"changing {change.key} would lose running jobs", hint))
        elif change.effect == Effect.DRAIN_FIRST:
            problems += _needs_drain(change, ask)
    return problems


def certain(changes: Sequence[Change], missing_nodes: Sequence[str]) -> Sequence[Change]:
    """Without those that may only seem so, because nodes are still missing in the new text."""
    if not missing_nodes:
        return changes
    seeming = [change for change in changes if change.action == "remove" and change.names]
    result = [change for change in changes if change not in seeming]
    for change in seeming:
        names = tuple(name for name in change.names if name not in missing_nodes)
        if change.key.startswith("NodeName=") and names:
            result.append(change._replace(key=f"NodeName={fold(list(names))}", names=names))
    return result


def _needs_drain(change: Change, ask: Callable[..., Any]) -> list[tuple[str, str]]:
    names = fold(list(change.names)) if change.key.startswith("NodeName=") else ",".join(change.names)
    if change.key.startswith("NodeName="):
        argv, where = [HOLDING, f"--nodelist={names}"], f"run on {names}"
        hint = f"drain and wait (scontrol update nodename={names} state=drain reason=change), then deploy again"
    elif change.key in CONTAINERS:
        argv, where = [HOLDING], "are running"
        hint = "their next steps would fail: drain (scontrol update nodename=ALL state=drain reason=new), then deploy"
    elif change.names:
        argv, where = [HOLDING, f"--partition={names}"], f"run in partition {names}"
        hint = f"close it and wait (scontrol update partitionname={names} state=drain), then deploy again"
    else:
        argv, where = [], "are there"
        hint = "Slurm would forget them all: let them end (scontrol update state=drain), then deploy again"
    shown = ask(slurm_client.squeue("%A", "--all", *argv))
    if not shown.ok:
        words = f"changing {change.key} may end jobs, and Slurm does not say which: {shown.failure}"
        return [(words, "see that slurmctld runs and answers (scontrol ping), then deploy again")]
    jobs = sorted(set(shown.output.split()), key=lambda job: (len(job), job))
    if not jobs:
        return []
    harm = "break" if change.key in CONTAINERS else "end"
    return [(f"changing {change.key} would {harm} jobs that {where}: {_some(jobs)}", hint)]


def _some(jobs: Sequence[str], most: int = 10) -> str:
    more = len(jobs) - most
    return ", ".join(jobs[:most]) + (f" and {more} more" if more > 0 else "")
