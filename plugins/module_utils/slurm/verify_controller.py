"""Whether slurmctld and slurmdbd run what was deployed, and the nodes that no user took out are registered."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    packages as node_packages,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    apply_config as slurm_apply_config,
    client as slurm_client,
    node_states as slurm_node_states,
    readiness as slurm_readiness,
    slurm_output,
)

CONTROLLER, ACCOUNTING = "slurmctld.service", "slurmdbd.service"
UNREGISTERED = "slurmctld has not registered the cluster %s with it"


class Observation:
    """The state of the controller at one query."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.version = ""
        self.nodes: dict[str, slurm_readiness.NodeState] = {}

    def add_problem(self, where: str, sentence: str) -> None:
        """Add a sentence about a daemon or a host, unless it is empty."""
        if sentence:
            self.problems.append(f"{where}: {sentence}")


def observe(wanted: Sequence[str], cluster: str) -> Observation:
    """One query; the later questions make no sense while slurmctld does not answer."""
    observation = Observation()
    shown = slurm_readiness.ask(slurm_client.CONFIG)
    if not shown.ok:
        observation.add_problem("slurmctld", f"does not answer: {slurm_readiness.last_line(shown.message)}")
        return observation
    config = slurm_output.config(shown.output)
    observation.version = config.get("SLURM_VERSION", "")
    if config.get("HASH_VAL", "Match").startswith("Different"):
        observation.add_problem("slurmctld", "runs another slurm.conf than the one that is installed")
    check_versions(observation)
    if cluster:
        observation.add_problem("slurmdbd", accounting_problem(cluster))
    observation.nodes = slurm_readiness.parse_nodes(slurm_readiness.ask(slurm_client.show("node")).output)
    for name in wanted:
        if name not in observation.nodes:
            observation.add_problem(name, "not in slurm.conf")
        elif observation.nodes[name].bad:
            observation.add_problem(name, observation.nodes[name].sentence())
    return observation


def check_versions(observation: Observation) -> None:
    """The daemons of this node against their packages."""
    installed = node_packages.installed(["slurmctld", "slurmdbd"])
    for unit, running_version in ((CONTROLLER, observation.version), (ACCOUNTING, "")):
        name = unit.partition(".")[0]
        pid = node_services.main_pid(unit)
        package = installed.get(name, "")
        if pid and package:
            # slurmdbd does not report its version; whether its program was replaced, the kernel does
            running = running_version or slurm_readiness.upstream(package)
            replaced = node_services.runs_a_replaced_program(pid)
            problem = slurm_readiness.version_sentence(name, running, package, replaced)
            if problem:
                observation.problems.append(problem)


def accounting_problem(cluster: str) -> str:
    """Why jobs of this cluster would not be accounted; '' when they are."""
    where = ("where", f"cluster={cluster}", "format=cluster,controlport")
    shown = slurm_readiness.ask(slurm_client.sacctmgr("cluster", *where))
    if not shown.ok:
        return f"does not answer: {slurm_readiness.last_line(shown.message)}"
    rows = [line.split("|") for line in shown.output.splitlines() if line]
    if not rows:
        return f"does not know the cluster {cluster}"
    return "" if rows[0][-1] not in ("", "0") else UNREGISTERED % cluster


def return_to_service(names: Sequence[str]) -> list[dict[str, str]]:
    """Nodes that Slurm took out because they restarted; it is known now that they are well. Returns what was done."""
    if not names:
        return []
    if not slurm_readiness.ask(slurm_client.update("node", names, "state=resume")).ok:
        return []
    return [{"kind": "node", "name": name, "action": "resume", "detail": slurm_readiness.REBOOTED} for name in names]


def register_again(start_timeout: float) -> list[dict[str, str]]:
    """Have slurmctld register with slurmdbd, which did not listen when it started. Returns what was done.

    By itself it does so only with its next record, and a quiet cluster has none. With 22.05 only a restart helps.
    """
    refusal, _hung = slurm_apply_config.reconfigure(start_timeout)
    detail = "it had not registered with slurmdbd"
    return [] if refusal else [node_changes.entry("unit", CONTROLLER, "reconfigure", detail=detail)]


def verify(params: Mapping[str, Any]) -> slurm_readiness.Ready:
    """Wait until the controller's daemons are ready; returns Ready. Raises NotReadyError."""
    wanted, cluster = params["nodes"], params["cluster"]
    deadline = time.monotonic() + params["timeout"]
    changes: list[dict[str, str]] = []
    tries: list[float] = []

    def attempt() -> Observation:
        observation = observe(wanted, cluster)
        known = [name for name in wanted if name in observation.nodes]
        changes.extend(return_to_service([name for name in known if observation.nodes[name].rebooted]))
        left = deadline - time.monotonic()
        only_unregistered = observation.problems == ["slurmdbd: " + UNREGISTERED % cluster]
        # one with a record to send registers within 20 s
        if only_unregistered and not tries and 0 < left < params["timeout"] * 2 / 3:
            tries.append(left)
            changes.extend(register_again(left))
        return observation

    observation = wait_until(attempt, params["timeout"], 0.5, lambda seen: not seen.problems)
    if observation.problems:
        raise not_ready(params, observation, changes)
    states = {name: observation.nodes[name].state for name in wanted}
    return slurm_readiness.Ready(
        changes, states, observation.version, slurm_readiness.credential(), warnings(wanted, observation, changes)
    )


def warnings(wanted: Mapping[str, Any], observation: Observation, changes: Sequence[Mapping[str, str]]) -> list[str]:
    """Warn of a slurmctld that had to register again, and of nodes that a user set down on purpose: they stay so."""
    words = "slurmctld read its configuration again"
    again = [f"{words}: {change['detail']}" for change in changes if change["action"] == "reconfigure"]
    down = [
        name
        for name in wanted
        if "DOWN" in slurm_node_states.flags(observation.nodes[name].state) and not observation.nodes[name].bad
    ]
    return again + [
        f"{name} stays down: {observation.nodes[name].reason_user} set it so ({observation.nodes[name].reason})"
        for name in down
    ]


def hanging(problems: Sequence[str]) -> list[str]:
    """Daemons of this node that systemd sees running, and that do not answer."""
    silent = [
        unit
        for unit in (CONTROLLER, ACCOUNTING)
        if any(problem.startswith(f"{unit.partition('.')[0]}: does not answer") for problem in problems)
    ]
    facts = node_services.show(silent) if silent else {}
    return [unit.partition(".")[0] for unit in silent if facts[unit].get("ActiveState") == "active"]


def not_ready(
    params: Mapping[str, Any], observation: Observation, changes: Sequence[Mapping[str, str]]
) -> slurm_readiness.NotReadyError:
    """The error that names what is wrong, and where to look."""
    nodes = [name for name in params["nodes"] if any(text.startswith(name + ":") for text in observation.problems)]
    where = f"`journalctl -u slurmd` on {', '.join(nodes[:5])}" if nodes else "`journalctl -u slurmctld -u slurmdbd`"
    hint = f"see {where}; the next deploy checks it again"
    if "slurmdbd: " + UNREGISTERED % params["cluster"] in observation.problems:
        hint = f"`systemctl restart slurmctld` there (jobs continue), then deploy again; see {where}"
    if any("still runs" in problem for problem in observation.problems):
        hint = "restart what still runs the old program with systemctl (jobs continue), then deploy again"
    hung = hanging(observation.problems)
    if hung:
        restart = f"`systemctl restart {' '.join(hung)}` there (jobs continue)"
        hint = f"it runs and says nothing: {restart}, then deploy again; see {where}"
    message = f"after {params['timeout']} s: {'; '.join(observation.problems)}"
    return slurm_readiness.NotReadyError(message, hint, changes)
