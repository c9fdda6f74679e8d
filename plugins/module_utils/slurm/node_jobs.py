"""Jobs of the node that this runs on: whether there are any, drain it and wait for them, and resume it."""

from __future__ import annotations

import re
import time

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import (
    facts as nvidia_facts,
    mig as nvidia_mig,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import output as slurm_output

RUNNING = "jobs run on it"
ANSWER_S = 30
# between two queries: most waits are for a job that takes minutes
PAUSE_S = 5
# what a node that has just started may take until its slurmd has registered
RETURN_S = 180
UNFIT = re.compile(r"DOWN|UNKNOWN|INVAL|FAIL|NOT_RESPONDING|\*")


class BusyError(node_errors.HintedError):
    """Jobs run on the node, or it can't be drained or resumed."""


def why_busy(node):
    """Why a job may be lost: one runs, or may start; '' where slurmd is off, or the node is drained and empty."""
    if nvidia_mig.has_steps():
        return RUNNING
    if not _serves():
        return ""
    drained = nvidia_facts.is_drained(_scontrol("show", "node", node).output)
    return "" if drained else "Slurm may start jobs on it"


def _serves():
    return node_services.is_active(node_services.show(["slurmd.service"]).get("slurmd.service", {}))


def _scontrol(*words):
    return node_command.run_merged(["scontrol", "--oneliner", *words], ANSWER_S)


def _node(name):
    """The node as slurmctld reports it; None where it does not answer."""
    shown = _scontrol("show", "node", name)
    known = {node["name"]: node for node in slurm_output.nodes(shown.output)} if shown.ok else {}
    return known.get(name)


def answers(name):
    """Whether slurmctld answers, and knows the node."""
    return _node(name) is not None


def is_uncertain(name):
    """Whether slurmd runs here, and slurmctld does not say how it has the node: it may be drained."""
    return not answers(name) and _serves()


def _update(name, *words):
    """The error text of an update, '' where it was made."""
    result = _scontrol("update", "nodename=" + name, *words)
    return "" if result.ok else " ".join(result.message.split()) or "scontrol update failed"


def drain(name, reason, wait, dry):
    """Drain the node unless somebody has, and wait for its jobs; whether this did it. Raises BusyError."""
    if not why_busy(name):
        return False
    node = _node(name)
    if node is None:
        raise BusyError("slurmctld does not answer, so the node can't be drained", "`deepopsctl status` shows more")
    drains = "DRAIN" not in node["state"]
    if dry:
        return drains
    if drains:
        error = _update(name, "state=drain", "reason=" + reason)
        if error:
            raise BusyError(f"it can't be drained: {error}", "see `sinfo -R` on the controller")
    deadline = time.monotonic() + wait
    while why_busy(name):
        if time.monotonic() > deadline:
            raise BusyError(
                "after %d s %s; the node stays drained" % (wait, _still(name)),
                "deploy again when they have ended, or end them with scancel",
            )
        time.sleep(min(PAUSE_S, max(deadline - time.monotonic(), 0.1)))
    return drains


def _still(name):
    """The jobs that are there."""
    queue = node_command.run_merged(["squeue", "--noheader", "--format=%i", "--nodelist=" + name], ANSWER_S)
    jobs = queue.output.split() if queue.ok else []
    return f"jobs {', '.join(jobs)} still run here" if jobs else "there is still a job's process here"


def is_drained_with(node, reason):
    """Whether the node is drained with this reason."""
    return node is not None and "DRAIN" in node["state"] and node["reason"] == reason


def resume(name, reason, difference, dry):
    """Resume the node if it is drained for this reason; whether it was. Raises BusyError.

    `difference` is called when its slurmd has registered, and returns why it must stay drained.
    """
    node = _node(name)
    if not is_drained_with(node, reason):
        return False
    if dry:
        return True
    deadline = time.monotonic() + RETURN_S
    while UNFIT.search(node["state"]):
        if time.monotonic() > deadline:
            raise BusyError(f"Slurm has it as {node['state']}, so it stays drained", "see `journalctl -u slurmd` there")
        time.sleep(1)
        # a slurmctld that says nothing for a moment has not forgotten the node
        node = _node(name) or node
    sentence = difference()
    if sentence:
        raise BusyError(sentence + "; it stays drained", "see `sinfo -R`; deploy again when that is fixed")
    if not is_drained_with(_node(name), reason):
        # while this waited, somebody drained it for another reason, or resumed it
        return False
    error = _update(name, "state=resume")
    if error:
        raise BusyError(f"it can't be resumed: {error}", "see `sinfo -R` on the controller")
    return True
