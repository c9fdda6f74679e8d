"""Drain a node and wait for its jobs, and resume it. Runs on the node itself."""

from __future__ import annotations

import re
import time

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import errors as node_errors
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    commands as slurm_commands,
    drain as slurm_drain,
    idle as slurm_idle,
    parse as slurm_parse,
)

ANSWER_S = 30
# between two queries: most waits are for a job that takes minutes
PAUSE_S = 5
# what a machine that has just started may take until its slurmd has registered
RETURN_S = 180
UNFIT = re.compile(r"DOWN|UNKNOWN|INVAL|FAIL|NOT_RESPONDING|\*")


class BusyError(node_errors.HintedError):
    """The node can't be drained of jobs."""


def _ask(*words):
    """(worked, output) of scontrol."""
    status, output = slurm_commands.run(["scontrol", "--oneliner"] + list(words), ANSWER_S)
    return status == 0, output


def _node(name):
    """The node as slurmctld reports it; None where it does not answer."""
    worked, output = _ask("show", "node", name)
    known = {node["name"]: node for node in slurm_parse.nodes(output)} if worked else {}
    return known.get(name)


def drain(name, reason, wait, dry):
    """Drain the node unless somebody has, and wait for its jobs; whether this did it. Raises BusyError."""
    if not slurm_idle.why_busy(name):
        return False
    node = _node(name)
    if node is None:
        raise BusyError("slurmctld does not answer, so the node can't be drained", "`deepopsctl status` shows more")
    drains = "DRAIN" not in node["state"]
    if dry:
        return drains
    if drains:
        worked, output = _ask("update", "nodename=" + name, "state=drain", "reason=" + reason)
        if not worked:
            raise BusyError("it can't be drained: %s" % " ".join(output.split()), "see `sinfo -R` on the controller")
    deadline = time.monotonic() + wait
    while slurm_idle.why_busy(name):
        if time.monotonic() > deadline:
            raise BusyError(
                "after %d s %s; the node stays drained" % (wait, _still(name)),
                "deploy again when they have ended, or end them with scancel",
            )
        time.sleep(min(PAUSE_S, max(deadline - time.monotonic(), 0.1)))
    return drains


def _still(name):
    """The jobs that are there."""
    status, output = slurm_commands.run(["squeue", "--noheader", "--format=%i", "--nodelist=" + name], ANSWER_S)
    jobs = output.split() if status == 0 else []
    return "jobs %s still run here" % ", ".join(jobs) if jobs else "there is still a job's process here"


def is_drained_with(node, reason):
    """Whether the node is drained with this reason."""
    return node is not None and "DRAIN" in node["state"] and node["reason"] == reason


def resume(name, reason, differs, dry):
    """Resume the node if it is drained for our reason; whether it was. `differs` may refuse it. Raises BusyError."""
    node = _node(name)
    if not is_drained_with(node, reason):
        return False
    if dry:
        return True
    deadline = time.monotonic() + RETURN_S
    while UNFIT.search(node["state"]):
        if time.monotonic() > deadline:
            raise BusyError(
                "Slurm has it as %s, so it stays drained" % node["state"], "see `journalctl -u slurmd` there"
            )
        time.sleep(1)
        # a slurmctld that says nothing for a moment has not forgotten the node
        node = _node(name) or node
    sentence = differs()
    if sentence:
        raise BusyError(sentence + "; it stays drained", "see `sinfo -R`; deploy again when that is fixed")
    if not is_drained_with(_node(name), reason):
        # while this waited, somebody drained it for another reason, or resumed it
        return False
    worked, output = _ask("update", "nodename=" + name, "state=resume")
    if not worked:
        raise BusyError("it can't be resumed: %s" % " ".join(output.split()), "see `sinfo -R` on the controller")
    return True


def reason_of(text):
    """The reason as Slurm has it."""
    return slurm_drain.our_reason(text)
