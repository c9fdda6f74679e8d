"""What Slurm has, for the control machine; that slurmctld does not answer, or is not there yet, is an answer."""

from __future__ import annotations

from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command as node_command
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    hostlist as slurm_hostlist,
    slurm_output,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.node_states import RESERVATION

# of several controllers, the one in control (role slurm_guard)
IN_CONTROL = ("/usr/local/sbin/deepops-slurm-controller", "active")
SHOW_NODES = slurm_client.show("node", "--details")
SHOW_JOBS = slurm_client.squeue(slurm_output.JOB_FORMAT, "--all", "--sort=i")


class _Answers:
    """The answers of slurmctld to one round of questions: later ones only where the first was answered."""

    def __init__(self, timeout: float) -> None:
        # a ping is refused at once where slurmctld is down; every other command tries for ten seconds
        self.last = slurm_client.ask(slurm_client.PING, timeout)
        self.is_installed = self.last.status != node_command.MISSING
        self.controllers = slurm_output.pinged(self.last.output)
        self.nodes = self.jobs = ""
        # one of several is enough
        if self.last.ok or any(self.controllers.values()):
            self.last = slurm_client.ask(SHOW_NODES, timeout)
            self.nodes = self.last.output
        if self.last.ok:
            self.last = slurm_client.ask(SHOW_JOBS, timeout)
            self.jobs = self.last.output


def report(wait: float = 0, timeout: float = slurm_client.ANSWER_S) -> dict[str, Any]:
    """The whole answer; `wait` seconds are spent on a slurmctld that says no, `timeout` on one that says nothing."""
    answers = wait_until(lambda: _Answers(timeout), wait, 0.5, lambda asked: asked.last.ok or not asked.is_installed)
    nodes: list[dict[str, Any]] = []
    jobs: list[dict[str, Any]] = []
    error = "" if answers.last.ok else sentence(answers.last)
    try:
        if not error:
            nodes, jobs = slurm_output.nodes(answers.nodes), slurm_output.jobs(answers.jobs)
    except slurm_output.UnreadableError as unreadable:
        error = str(unreadable)
    controllers = answers.controllers
    return {
        "installed": answers.is_installed,
        "controller_up": not error,
        "error": error,
        "controllers": controllers,
        "in_control": slurm_client.ask(IN_CONTROL, timeout).output.strip() if len(controllers) > 1 else "",
        "nodes": nodes,
        "jobs": jobs,
        "reserved": [] if error else reserved_nodes(),
        "versions": versions(up=not error) if answers.is_installed else {},
    }


def reserved_nodes() -> list[str]:
    """The nodes in the reservation for nodes that are not tested yet."""
    shown = slurm_client.ask(slurm_client.show("reservation", RESERVATION))
    entry = slurm_output.records(shown.output, "ReservationName").get(RESERVATION, {}) if shown.ok else {}
    return slurm_hostlist.expand(slurm_output.present(entry.get("Nodes")))


def sentence(result: node_command.Result) -> str:
    """Why a command failed, in one line, without the stars that `scontrol ping` adds."""
    lines = [] if result.status == node_command.TIMED_OUT else result.message.splitlines()
    words = [line.strip() for line in lines if line.strip("* ") and not line.startswith("**")]
    return " ".join(words) or result.failure


def versions(*, up: bool) -> dict[str, str]:
    """What is installed, and what runs: they differ between an upgrade of the packages and the restart."""
    result = installed_version()
    running = slurm_output.running_version(slurm_client.ask(slurm_client.CONFIG).output) if up else ""
    return {**result, "slurmctld": running} if running else result


def installed_version() -> dict[str, str]:
    """{slurm: version} of the tools on this node, {} without any."""
    version = slurm_client.version()
    return {"slurm": version} if version else {}
