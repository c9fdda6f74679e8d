"""Whether this node's slurmd runs what was deployed, and slurmctld has registered the node."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    packages as node_packages,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import gpu_check as nvidia_gpu_check
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    node_states as slurm_node_states,
    readiness as slurm_readiness,
    slurm_output,
    spank as slurm_spank,
)

UNIT = "slurmd.service"
DRIVER = "/sys/module/nvidia/version"
RESTART = "systemctl restart slurmd (jobs continue)"


class Observation:
    """The state of the node at one query. A problem is a sentence; `repairable` ones may go when slurmd restarts."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.repairable = False
        self.lasting = False
        self.hint = ""
        self.version = ""
        self.state = slurm_readiness.NodeState("")

    def add_problem(self, sentence: str, repairable: bool = False, hint: str = "") -> None:
        """Add a sentence, unless it is empty. `repairable`: it may go when slurmd restarts; the first hint stays."""
        if sentence:
            self.problems.append(sentence)
            self.repairable = self.repairable or repairable
            self.hint = self.hint or hint

    @property
    def is_ready(self) -> bool:
        """True when nothing is wrong, and slurmctld has the node as one that serves."""
        return not self.problems and not self.state.bad


def observe(wanted: Mapping[str, Any], node: str, gpus: nvidia_gpu_check.Comparison) -> Observation:
    """Query slurmd, munge, the node's files and its registration once.

    Files are compared only where slurmd answers. Nothing is changed.
    """
    observation = Observation()
    if check_daemon(observation, wanted):
        check_files(observation, wanted)
    check_plugins(observation)
    check_registration(observation, wanted, node, gpus)
    return observation


def check_daemon(observation: Observation, wanted: Mapping[str, Any]) -> bool:
    """True when slurmd answers; is it in the right version?"""
    shown = slurm_readiness.ask(slurm_client.scontrol("show", "slurmd"))
    if not shown.ok:
        observation.add_problem(no_answer_reason(shown.message), repairable=True)
        return False
    observation.version = slurm_output.config(shown.output).get("Version", "")
    installed = node_packages.installed(["slurmd"]).get("slurmd", "")
    replaced = node_services.runs_a_replaced_program(node_services.main_pid(UNIT))
    observation.add_problem(
        slurm_readiness.version_sentence("slurmd", observation.version, installed, replaced), hint=f"{RESTART} there"
    )
    if wanted["version"] and slurm_readiness.release(observation.version) > slurm_readiness.release(wanted["version"]):
        observation.add_problem(
            f"slurmd {observation.version} is newer than the controller's {wanted['version']}: Slurm refuses that",
            hint="upgrade all nodes to the same release of the operating system, controllers first",
        )
    return True


def no_answer_reason(output: str) -> str:
    """Why slurmd says nothing."""
    state = node_services.show([UNIT]).get(UNIT, {}).get("ActiveState", "unknown")
    if state == "active":
        return f"slurmd runs but does not answer: {slurm_readiness.last_line(output)}"
    return f"slurmd does not run ({state}): {slurm_readiness.last_error(node_services.journal_tail(UNIT))}"


def check_files(observation: Observation, wanted: Mapping[str, Any]) -> None:
    """Is the configuration that slurmd fetched the one of this deploy?"""
    for name, digest in sorted(wanted["files"].items()):
        path = os.path.join(wanted["directory"], name)
        facts = node_record.file_facts(path)
        if facts is None:
            observation.add_problem(f"slurmd has fetched no {name}", repairable=True)
        elif facts[0] != digest:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(path).st_mtime))
            observation.add_problem(f"slurmd still has the {name} of {since}", repairable=True)


def check_plugins(observation: Observation) -> None:
    """Would slurmd start again with the plugins that jobs have to load?"""
    reasons = slurm_spank.obstacles(observation.version)
    # one that has not fetched the files of this deploy yet may have lines that are gone
    observation.lasting = bool(reasons) and not observation.problems
    observation.add_problem("; ".join(reasons), hint=slurm_spank.HINT)


def check_registration(
    observation: Observation, wanted: Mapping[str, Any], node: str, gpus: nvidia_gpu_check.Comparison
) -> None:
    """Does slurmctld know this node as one that serves, with the GPUs that are there? If not, does munge say why?"""
    shown = slurm_readiness.ask(slurm_client.show("node", node))
    observation.state = slurm_readiness.parse_nodes(shown.output).get(node, observation.state)
    # only a slurmd that runs what it should has a say about GPUs
    differs = gpus.sentence(shown.output) if shown.ok and not observation.problems else ""
    observation.add_problem(differs, hint=nvidia_gpu_check.HINT)
    observation.lasting = observation.lasting or (bool(differs) and gpus.lasting)
    if shown.ok and observation.state.state and not observation.state.bad:
        return
    refused = munge_problem(wanted)
    observation.add_problem(
        refused, hint="see `journalctl -u munge`, /etc/default/munge and the clock (chronyc tracking) there"
    )
    if not (shown.ok and observation.state.state):
        observation.add_problem(
            "" if refused else f"{wanted['controller']} does not answer it: {slurm_readiness.last_line(shown.message)}"
        )
    elif not observation.state.rebooted:
        # a slurmd that starts registers with slurmctld at once
        observation.add_problem(observation.state.sentence(), repairable=observation.state.unheard and not refused)


def munge_problem(wanted: Mapping[str, Any]) -> str:
    """Why the controller's credential does not decode here; empty where it does, or where there is none."""
    if not wanted["credential"]:
        return ""
    _status, output = slurm_readiness.run_merged(["unmunge"], text=wanted["credential"])
    return slurm_readiness.credential_sentence(output, wanted["controller"])


class Repair:
    """What is done about a node that does not come by itself, once each."""

    def __init__(self, node: str, restart_after: float) -> None:
        self.node = node
        self.restart_after = restart_after
        self.changes: list[dict[str, str]] = []
        self.refused = ""

    def note(self, type_name: str, name: str, action: str, detail: str) -> None:
        """Add an entry of `changes`."""
        self.changes.append({"kind": type_name, "name": name, "action": action, "detail": detail})

    def done(self, action: str) -> bool:
        """Whether an action was taken before: each is taken once."""
        return any(change["action"] == action for change in self.changes)

    def attempt(self, observation: Observation) -> None:
        """Restart slurmd after `restart_after` (monotonic seconds); resume a node that Slurm set down for its reboot.

        Each once; `refused` has the reason where systemd does not restart slurmd.
        """
        if (
            observation.repairable
            and time.monotonic() > self.restart_after
            and not self.done("restart")
            and not self.refused
        ):
            # it starts for good only when the controller answers: wait here, where it is seen why it does not
            status, output = slurm_readiness.run_merged(["systemctl", "restart", "--no-block", UNIT])
            if status:
                self.refused = f"it cannot be restarted: {slurm_readiness.last_line(output)}"
            else:
                self.note("unit", UNIT, "restart", "; ".join(observation.problems))
        if not observation.problems and observation.state.rebooted and not self.done("resume"):
            slurm_readiness.ask(slurm_client.update("node", [self.node], "state=resume"))
            self.note("node", self.node, "resume", slurm_readiness.REBOOTED)


def verify(params: Mapping[str, Any]) -> slurm_readiness.Ready:
    """Wait until this node's slurmd is ready, and record that; returns Ready. Raises NotReadyError."""
    (node,) = params["nodes"]
    repair = Repair(node, time.monotonic() + params["timeout"] / 3.0)
    gpus = nvidia_gpu_check.Comparison(params["gpus"], node)

    def attempt() -> Observation:
        observation = observe(params, node, gpus)
        repair.attempt(observation)
        return observation

    observation = wait_until(attempt, params["timeout"], 0.5, lambda seen: seen.is_ready or seen.lasting)
    if not observation.is_ready:
        raise not_ready(params, observation, repair)
    record(params)
    texts = repair_warnings(repair) + warnings(params, observation) + gpus.warnings()
    return slurm_readiness.Ready(repair.changes, {node: observation.state.state}, observation.version, "", texts)


def repair_warnings(repair: Repair) -> list[str]:
    """What was done about the node, for a person to wonder why it was necessary."""
    words = {"restart": "slurmd was restarted", "resume": "returned to service"}
    return [f"{words[change['action']]}: {change['detail']}" for change in repair.changes]


def warnings(wanted: Mapping[str, Any], observation: Observation) -> list[str]:
    """What is right, and still worth a word."""
    if "DOWN" in slurm_node_states.flags(observation.state.state):
        return [f"stays down: {observation.state.reason_user} set it so ({observation.state.reason})"]
    if observation.version and slurm_readiness.release(observation.version) < slurm_readiness.release(
        wanted["version"]
    ):
        return [f"slurmd {observation.version} is older than the controller's {wanted['version']}"]
    return []


def record(wanted: Mapping[str, Any]) -> None:
    """Record that it was verified. No hashes: every later change on the controller changes them, rightly so."""
    # without the expected files nothing was verified
    digest = wanted["digest"] if wanted["files"] else ""
    # another driver may see other GPUs
    items = node_record.items(files=[DRIVER] if wanted["gpus"] else [])
    node_record.save(wanted["component"], wanted["step"], digest, items)


def not_ready(params: Mapping[str, Any], observation: Observation, repair: Repair) -> slurm_readiness.NotReadyError:
    """The error that names what is wrong, and where to look."""
    tried = ["a restart of slurmd did not help"] if repair.done("restart") else [repair.refused]
    sentences = (observation.problems or [observation.state.sentence()]) + [text for text in tried if text]
    return slurm_readiness.NotReadyError(
        ("" if observation.lasting else f"after {params['timeout']} s: ") + "; ".join(sentences),
        observation.hint or "see `journalctl -u slurmd` there; the next deploy checks the node again",
        repair.changes,
    )
