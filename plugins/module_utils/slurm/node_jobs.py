"""Jobs of the node that this runs on: whether there are any, drain it and wait for them, and resume it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_errors,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import mig as nvidia_mig
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    node_states as slurm_node_states,
)

RUNNING = "jobs run on it"
# between two queries: most waits are for a job that takes minutes
PAUSE_S = 5
# what a node that has just started may take until its slurmd has registered
RETURN_S = 180


class BusyError(node_errors.HintedError):
    """Jobs run on the node, or it can't be drained or resumed."""


def why_busy(node: str) -> str:
    """Why a job may be lost: one runs, or may start; '' where slurmd is off, or the node is drained and empty."""
    if nvidia_mig.has_steps():
        return RUNNING
    if not _serves():
        return ""
    # where slurmctld does not answer it may, too
    shown = _node(node)
    is_safe = shown is not None and slurm_node_states.is_empty_and_drained(shown["state"])
    return "" if is_safe else "Slurm may start jobs on it"


def _serves() -> bool:
    return node_services.is_active(node_services.show(["slurmd.service"]).get("slurmd.service", {}))


def _node(name: str) -> dict[str, Any] | None:
    """The node as slurmctld reports it; None where it does not answer."""
    try:
        return slurm_client.nodes(name).get(name)
    except slurm_client.NoAnswerError:
        return None


def answers(name: str) -> bool:
    """Whether slurmctld answers, and knows the node."""
    return _node(name) is not None


def is_uncertain(name: str) -> bool:
    """Whether slurmd runs here, and slurmctld does not say how it has the node: it may be drained."""
    return not answers(name) and _serves()


def _update(name: str, *words: str) -> str:
    """The error text of an update, '' where it was made."""
    result = slurm_client.ask(slurm_client.update("node", [name], *words))
    return "" if result.ok else " ".join(result.message.split()) or "scontrol update failed"


def drain(name: str, reason: str, wait: float, dry: bool) -> bool:
    """Drain the node unless it is drained already, and wait for its jobs; whether this did it. Raises BusyError."""
    if not why_busy(name):
        return False
    node = _node(name)
    if node is None:
        raise BusyError("slurmctld does not answer, so the node can't be drained", "`deepopsctl status` shows more")
    drains = "DRAIN" not in slurm_node_states.flags(node["state"])
    if dry:
        return drains
    if drains:
        error = _update(name, "state=drain", "reason=" + reason)
        if error:
            raise BusyError(f"it can't be drained: {error}", "see `sinfo -R` on the controller")
    if wait_until(lambda: why_busy(name), wait, PAUSE_S, lambda why: not why):
        raise BusyError(
            f"after {wait} s {_still(name)}; the node stays drained",
            "deploy again when they have ended, or end them with scancel",
        )
    return drains


def _still(name: str) -> str:
    """The jobs that are there."""
    queue = slurm_client.ask(slurm_client.squeue("%i", "--nodelist=" + name))
    jobs = queue.output.split() if queue.ok else []
    return f"jobs {', '.join(jobs)} still run here" if jobs else "there is still a job's process here"


def _serves_again(node: Mapping[str, Any]) -> bool:
    return not slurm_node_states.flags(node["state"]) & slurm_node_states.NOT_SERVING


def resume(name: str, reason: str, difference: Callable[[], str], dry: bool) -> bool:
    """Resume the node if it is drained for this reason; whether it was. Raises BusyError.

    `difference` is called when its slurmd has registered, and returns why it must stay drained.
    """
    node = _node(name)
    if node is None or not slurm_node_states.is_drained_with(node, reason):
        return False
    before = node
    if dry:
        return True
    if not _serves_again(node):
        # a slurmctld that says nothing for a moment has not forgotten the node
        node = wait_until(lambda: _node(name) or before, RETURN_S, 1, _serves_again)
    if not _serves_again(node):
        raise BusyError(f"Slurm has it as {node['state']}, so it stays drained", "see `journalctl -u slurmd` there")
    sentence = difference()
    if sentence:
        raise BusyError(sentence + "; it stays drained", "see `sinfo -R`; deploy again when that is fixed")
    if not slurm_node_states.is_drained_with(_node(name), reason):
        # while this waited, an administrator drained it for another reason, or resumed it
        return False
    error = _update(name, "state=resume")
    if error:
        raise BusyError(f"it can't be resumed: {error}", "see `sinfo -R` on the controller")
    return True
