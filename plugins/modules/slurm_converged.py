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
    services as node_units,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import readiness as slurm

CONTROLLER, ACCOUNTING = "slurmctld.service", "slurmdbd.service"


class Observation:
    """What one look at the controller found."""

    def __init__(self):
        self.problems = []
        self.version = ""
        self.nodes = {}

    def found(self, where, sentence):
        if sentence:
            self.problems.append("%s: %s" % (where, sentence))


def observe(wanted, cluster):
    """One look; the later questions make no sense while slurmctld does not answer."""
    seen = Observation()
    status, output = slurm.run(["scontrol", "show", "config"])
    if status:
        seen.found("slurmctld", "does not answer: %s" % slurm.last_line(output))
        return seen
    config = slurmtext.config(output)
    seen.version = config.get("SLURM_VERSION", "")
    if config.get("HASH_VAL", "Match").startswith("Different"):
        seen.found("slurmctld", "runs another slurm.conf than the one that is installed")
    check_versions(seen)
    if cluster:
        seen.found("slurmdbd", accounting_problem(cluster))
    status, output = slurm.run(["scontrol", "--oneliner", "show", "node"])
    seen.nodes = slurm.parse_nodes(output)
    for name in wanted:
        if name not in seen.nodes:
            seen.found(name, "not in slurm.conf")
        elif seen.nodes[name].bad:
            seen.found(name, seen.nodes[name].sentence())
    return seen


def check_versions(seen):
    """The daemons of this machine against their packages."""
    installed = node_packages.installed(["slurmctld", "slurmdbd"])
    for unit, running_version in ((CONTROLLER, seen.version), (ACCOUNTING, "")):
        name = unit.partition(".")[0]
        pid = node_units.main_pid(unit)
        package = installed.get(name, "")
        if pid and package:
            # slurmdbd does not tell its version; whether its program was replaced, the kernel does
            running = running_version or slurm.upstream(package)
            replaced = node_units.runs_a_replaced_program(pid)
            problem = slurm.version_sentence(name, running, package, replaced)
            if problem:
                seen.problems.append(problem)


def accounting_problem(cluster):
    """Why jobs of this cluster would not be accounted; '' when they are."""
    status, output = slurm.run(
        ["sacctmgr", "-nP", "show", "cluster", "where", "cluster=%s" % cluster, "format=cluster,controlport"]
    )
    if status:
        return "does not answer: %s" % slurm.last_line(output)
    rows = [line.split("|") for line in output.splitlines() if line]
    if not rows:
        return "does not know the cluster %s" % cluster
    return "" if rows[0][-1] not in ("", "0") else "slurmctld has not registered the cluster %s with it" % cluster


def return_to_service(names):
    """Nodes that Slurm took out because they restarted; it is known now that they are well. Returns what was done."""
    if not names:
        return []
    status, _output = slurm.run(["scontrol", "update", "nodename=%s" % ",".join(names), "state=resume"])
    if status:
        return []
    return [{"kind": "node", "name": name, "action": "resume", "detail": slurm.REBOOTED} for name in names]


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
        seen = observe(wanted, cluster)
        changes += return_to_service([name for name in wanted if name in seen.nodes and seen.nodes[name].rebooted])
        if not seen.problems:
            break
        if time.monotonic() > deadline:
            fail(module, seen, changes)
        time.sleep(0.5)
    module.exit_json(
        changed=bool(changes),
        actions=["%s %s: %s" % (change["action"], change["name"], change["detail"]) for change in changes],
        states={name: seen.nodes[name].state for name in wanted},
        version=seen.version,
        credential=slurm.credential(),
        changes=changes,
        deepops_warnings=warnings(wanted, seen),
    )


def warnings(wanted, seen):
    """Nodes that somebody set down on purpose: not ours to touch, and not to be forgotten."""
    down = [name for name in wanted if seen.nodes[name].state.startswith("DOWN") and not seen.nodes[name].bad]
    return [
        "%s stays down: %s set it so (%s)" % (name, seen.nodes[name].reason_user, seen.nodes[name].reason)
        for name in down
    ]


def hanging(problems):
    """Daemons of this machine that systemd sees running, and that answer nobody."""
    silent = [
        unit
        for unit in (CONTROLLER, ACCOUNTING)
        if any(problem.startswith("%s: does not answer" % unit.partition(".")[0]) for problem in problems)
    ]
    facts = node_units.show(silent) if silent else {}
    return [unit.partition(".")[0] for unit in silent if facts[unit].get("ActiveState") == "active"]


def fail(module, seen, changes):
    node_record.save(module.params["component"], module.params["step"], "", {})
    nodes = [name for name in module.params["nodes"] if any(text.startswith(name + ":") for text in seen.problems)]
    where = "`journalctl -u slurmd` on %s" % ", ".join(nodes[:5]) if nodes else "`journalctl -u slurmctld -u slurmdbd`"
    stale = any("still runs" in problem for problem in seen.problems)
    hint = "restart what still runs the old program with systemctl (jobs go on), then deploy again" if stale else ""
    hung = hanging(seen.problems)
    if hung:
        restart = "it runs and says nothing: `systemctl restart %s` there (jobs go on), then deploy again" % " ".join(
            hung
        )
        hint = "%s; see %s" % (restart, where)
    module.fail_json(
        msg="after %d s: %s" % (module.params["timeout"], "; ".join(seen.problems)),
        hint=hint or "see %s; the next deploy looks at it again" % where,
        changed=bool(changes),
        changes=changes,
    )


if __name__ == "__main__":
    main()
