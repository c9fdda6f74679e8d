#!/usr/bin/python
"""Wait until Slurm's controller and accounting run what was deployed, and the nodes nobody touched are registered."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_converged
short_description: Wait until slurmctld and slurmdbd run what was deployed
description:
  - The deploy is over when the daemons run what was asked, not when the last file is written. This is the
    controller's part, M(deepopsctl.cluster.slurmd_converged) is the nodes'.
  - Compares the configuration that slurmctld runs with the one on disk, the versions that run with the installed
    ones, asks slurmdbd whether the cluster is registered, and slurmctld for the nodes that the deploy left alone.
  - Nodes that somebody drained or set down stay so. Those that Slurm itself set down because they restarted
    unannounced serve again, when they are registered.
options:
  cluster: {description: ClusterName; empty asks slurmdbd nothing., type: str, default: ""}
  nodes: {description: Nodes that must be registered., type: list, elements: str, default: []}
  timeout: {description: Seconds to wait., type: int, default: 60}
  component: {description: Component of the record below., type: str, default: slurm}
  step:
    description: Step whose record is forgotten when this fails, so that the next deploy looks again.
    type: str
    default: slurm_config
author: deepopsctl
"""

EXAMPLES = r"""
- name: Wait until slurmctld runs what was deployed
  deepopsctl.cluster.slurm_converged: {cluster: hpc, nodes: [gpu01, gpu02]}
"""

RETURN = r"""
states: {description: State of each node as slurmctld has it., type: dict, returned: always}
version: {description: Version of the slurmctld that runs., type: str, returned: always}
credential: {description: A munge credential for the nodes to try., type: str, returned: always}
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import slurmtext
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    packages_apt as node_packages,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import readiness as slurm_readiness

CONTROLLER, ACCOUNTING = "slurmctld.service", "slurmdbd.service"


class Observation:
    """The state of the controller at one query."""

    def __init__(self):
        self.problems = []
        self.version = ""
        self.nodes = {}

    def add_problem(self, where, sentence):
        if sentence:
            self.problems.append("%s: %s" % (where, sentence))


def observe(wanted, cluster):
    """One look; the later questions make no sense while slurmctld does not answer."""
    observation = Observation()
    status, output = slurm_readiness.run(["scontrol", "show", "config"])
    if status:
        observation.add_problem("slurmctld", "does not answer: %s" % slurm_readiness.last_line(output))
        return observation
    config = slurmtext.config(output)
    observation.version = config.get("SLURM_VERSION", "")
    if config.get("HASH_VAL", "Match").startswith("Different"):
        observation.add_problem("slurmctld", "runs another slurm.conf than the one that is installed")
    check_versions(observation)
    if cluster:
        observation.add_problem("slurmdbd", accounting_problem(cluster))
    status, output = slurm_readiness.run(["scontrol", "--oneliner", "show", "node"])
    observation.nodes = slurm_readiness.parse_nodes(output)
    for name in wanted:
        if name not in observation.nodes:
            observation.add_problem(name, "not in slurm.conf")
        elif observation.nodes[name].bad:
            observation.add_problem(name, observation.nodes[name].sentence())
    return observation


def check_versions(observation):
    """The daemons of this machine against their packages."""
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


def accounting_problem(cluster):
    """Why jobs of this cluster would not be accounted; '' when they are."""
    status, output = slurm_readiness.run(
        ["sacctmgr", "-nP", "show", "cluster", "where", "cluster=%s" % cluster, "format=cluster,controlport"]
    )
    if status:
        return "does not answer: %s" % slurm_readiness.last_line(output)
    rows = [line.split("|") for line in output.splitlines() if line]
    if not rows:
        return "does not know the cluster %s" % cluster
    return "" if rows[0][-1] not in ("", "0") else "slurmctld has not registered the cluster %s with it" % cluster


def return_to_service(names):
    """Nodes that Slurm took out because they restarted; it is known now that they are well. Returns what was done."""
    if not names:
        return []
    status, _output = slurm_readiness.run(["scontrol", "update", "nodename=%s" % ",".join(names), "state=resume"])
    if status:
        return []
    return [{"kind": "node", "name": name, "action": "resume", "detail": slurm_readiness.REBOOTED} for name in names]


def main():
    module = AnsibleModule(
        argument_spec={
            "cluster": {"default": ""},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 60},
            "component": {"default": "slurm"},
            "step": {"default": "slurm_config"},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, states={}, version="", credential="", changes=[])
    wanted, cluster = module.params["nodes"], module.params["cluster"]
    deadline = time.monotonic() + module.params["timeout"]
    changes = []
    while True:
        observation = observe(wanted, cluster)
        changes += return_to_service(
            [name for name in wanted if name in observation.nodes and observation.nodes[name].rebooted]
        )
        if not observation.problems:
            break
        if time.monotonic() > deadline:
            fail(module, observation, changes)
        time.sleep(0.5)
    module.exit_json(
        changed=bool(changes),
        actions=["%s %s: %s" % (change["action"], change["name"], change["detail"]) for change in changes],
        states={name: observation.nodes[name].state for name in wanted},
        version=observation.version,
        credential=slurm_readiness.credential(),
        changes=changes,
        deepops_warnings=warnings(wanted, observation),
    )


def warnings(wanted, observation):
    """Warn of nodes that somebody set down on purpose: they stay as they are."""
    down = [
        name for name in wanted if observation.nodes[name].state.startswith("DOWN") and not observation.nodes[name].bad
    ]
    return [
        "%s stays down: %s set it so (%s)" % (name, observation.nodes[name].reason_user, observation.nodes[name].reason)
        for name in down
    ]


def hanging(problems):
    """Daemons of this machine that systemd sees running, and that answer nobody."""
    silent = [
        unit
        for unit in (CONTROLLER, ACCOUNTING)
        if any(problem.startswith("%s: does not answer" % unit.partition(".")[0]) for problem in problems)
    ]
    facts = node_services.show(silent) if silent else {}
    return [unit.partition(".")[0] for unit in silent if facts[unit].get("ActiveState") == "active"]


def fail(module, observation, changes):
    node_record.save(module.params["component"], module.params["step"], "", {})
    nodes = [
        name for name in module.params["nodes"] if any(text.startswith(name + ":") for text in observation.problems)
    ]
    where = "`journalctl -u slurmd` on %s" % ", ".join(nodes[:5]) if nodes else "`journalctl -u slurmctld -u slurmdbd`"
    stale = any("still runs" in problem for problem in observation.problems)
    hint = "restart what still runs the old program with systemctl (jobs go on), then deploy again" if stale else ""
    hung = hanging(observation.problems)
    if hung:
        restart = "it runs and says nothing: `systemctl restart %s` there (jobs go on), then deploy again" % " ".join(
            hung
        )
        hint = "%s; see %s" % (restart, where)
    module.fail_json(
        msg="after %d s: %s" % (module.params["timeout"], "; ".join(observation.problems)),
        hint=hint or "see %s; the next deploy checks it again" % where,
        changed=bool(changes),
        changes=changes,
    )


if __name__ == "__main__":
    main()
