"""What Slurm's commands say about a daemon that should run a new configuration, and the sentences for what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command as node_command
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    node_states as slurm_node_states,
    slurm_output,
)

# longer than a busy slurmctld takes, shorter than anybody waits for one that hangs
ANSWER_S = 15
REBOOTED = "Node unexpectedly rebooted"
# what munge says of a credential that another clock made
CLOCK = re.compile(r"Expired|Rewound")


class Ready(NamedTuple):
    """Of a daemon that is ready: what was done for it, states of nodes, its version, a munge credential, warnings."""

    changes: list[dict[str, Any]]
    states: dict[str, str]
    version: str
    credential: str
    warnings: list[str]


class NotReadyError(Exception):
    """A daemon does not run what was deployed; `changes` is what was tried."""

    def __init__(self, message: str, hint: str, changes: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message)
        self.hint = hint
        self.changes = changes


class NodeState(NamedTuple):
    """A node as slurmctld has it."""

    state: str
    reason: str = ""
    reason_user: str = ""

    @property
    def bad(self) -> bool:
        """True when the node does not serve as it should, and that was not asked for."""
        flags = slurm_node_states.flags(self.state)
        asked_for = slurm_node_states.is_by_person(self.reason_user) and slurm_node_states.is_only_down(self.state)
        return bool(flags & slurm_node_states.NOT_SERVING) and not asked_for

    @property
    def rebooted(self) -> bool:
        """True when all that keeps it from serving is that Slurm saw it restart unannounced."""
        by_slurm = self.reason.startswith(REBOOTED) and not slurm_node_states.is_by_person(self.reason_user)
        return by_slurm and slurm_node_states.is_only_down(self.state) and "DRAIN" not in self.state

    @property
    def unheard(self) -> bool:
        """True when slurmctld has had no answer from it: it asks again only after a third of SlurmdTimeout."""
        return "NOT_RESPONDING" in slurm_node_states.flags(self.state)

    def sentence(self) -> str:
        """`slurmctld has it as DOWN (Not responding)`."""
        return f"slurmctld has it as {self.state}{(f' ({self.reason})' if self.reason else '')}"


def run_merged(argv: Sequence[str], text: str = "", seconds: float = ANSWER_S) -> tuple[int, str]:
    """(exit status, combined output) of one of munge's or systemd's commands."""
    result = node_command.run_merged(argv, seconds, text)
    return result.status, result.message


def ask(argv: Sequence[str]) -> node_command.Result:
    """The answer of one of Slurm's commands."""
    return slurm_client.ask(argv, ANSWER_S)


def parse_nodes(output: str) -> dict[str, NodeState]:
    """{node: NodeState} from `scontrol --oneliner show node`."""
    return {
        node["name"]: NodeState(node["state"], node["reason"], node["reason_user"])
        for node in slurm_output.nodes(output)
    }


def out_of_service(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """(what is wrong with slurmctld, {node: NodeState} of those that it knows and Slurm itself keeps from serving)."""
    if not names:
        return "", {}
    shown = ask(slurm_client.show("node"))
    if not shown.ok:
        # not installed yet is not trouble
        missing = shown.status == node_command.MISSING
        return "" if missing else f"slurmctld does not answer: {last_line(shown.message)}", {}
    nodes = parse_nodes(shown.output)
    return "", {name: nodes[name] for name in names if name in nodes and nodes[name].bad}


def last_line(output: str) -> str:
    """What a command says at the end: why it gives up."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return re.sub(r"^(\S+: )?(error|fatal): ", "", lines[-1]) if lines else "no answer"


def last_error(journal: str) -> str:
    """The last line of a daemon's journal that says what is wrong, else its last line."""
    lines = [line for line in journal.splitlines() if re.search(r"error:|fatal:", line)]
    return last_line("\n".join(lines) or journal)


def upstream(version: str) -> str:
    """`24.11.5` from the package's `1:24.11.5-4+deb13u1`."""
    return re.sub(r"^\d+:|[-+~].*$", "", version)


def release(version: str) -> tuple[int, ...]:
    """(24, 11), which is what Slurm's daemons compare; () for what is not a valid version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def version_sentence(daemon: str, running: str, installed: str, replaced: bool) -> str:
    """What is wrong between the daemon that runs and the package that is installed; '' when nothing is."""
    if not running or not installed:
        return ""
    if upstream(installed) != running:
        return f"{daemon} still runs {running} though {upstream(installed)} is installed"
    if replaced:
        return f"{daemon} still runs the program that was there before {installed} was installed"
    return ""


def credential() -> str:
    """For the nodes to decode. Made as the user `nobody`, for root only: Slurm takes nothing that `nobody` signed."""
    status, output = run_merged(["runuser", "-u", "nobody", "--", "munge", "--no-input", "--restrict-uid=0"])
    return output if status == 0 else ""


def credential_sentence(output: str, controller: str) -> str:
    """What `unmunge` says about a credential of the controller's, as a reason; '' when it is fine."""
    status = re.search(r"^STATUS:\s+(.*?)\s*(?:\(\d+\))?$", output, re.MULTILINE)
    words = status.group(1) if status else last_line(output).replace("unmunge: Error: ", "")
    # tried twice is as good as once
    if words in ("Success", "Replayed credential"):
        return ""
    times = [int(seconds) for seconds in re.findall(r"^(?:EN|DE)CODE_TIME:.*\((\d+)\)$", output, re.MULTILINE)]
    if CLOCK.search(words) and len(times) == 2:
        ahead = times[1] - times[0]
        where = "ahead of" if ahead > 0 else "behind"
        return f"its clock is about {abs(ahead)} s {where} {controller}'s: munge refuses what the other signs"
    if words == "Invalid credential":
        return f"its munge runs with another key than {controller}'s"
    return f"munge: {words}"
