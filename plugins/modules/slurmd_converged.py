#!/usr/bin/python
"""Wait until this node's slurmd runs what was deployed, and slurmctld has it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurmd_converged
short_description: Wait until slurmd runs what was deployed
description:
  - Asks the node itself. Does slurmd answer, in the version that is installed, with the configuration files that were
    rendered in this deploy, and has slurmctld registered the node? Are the GPUs that the driver finds those of
    cluster.yml, and those that slurmd has registered? If they are not, the node is not returned to service.
  - A slurmd that missed the new configuration, hangs, or that slurmctld does not hear is restarted once (jobs go on).
    What that does not mend is named, and the node is looked at again by the next deploy, for nothing is recorded.
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  node: {description: The node's name in Slurm., type: str, required: true}
  controller: {description: Name of the controller for messages., type: str, required: true}
  version: {description: Version of the slurmctld that runs., type: str, default: ""}
  credential: {description: A munge credential of the controller's., type: str, default: ""}
  files: {description: "sha256 of each file that slurmd must have fetched.", type: dict, default: {}}
  folder: {description: Where slurmd keeps them., type: path, default: /run/slurm/conf}
  gpus: {description: "The node's GPUs as cluster.yml has them (filter nvidia_expected).", type: dict, default: {}}
  timeout: {description: Seconds to wait., type: int, default: 60}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Wait until slurmd runs what was deployed
  deepopsctl.cluster.slurmd_converged:
    component: slurm
    step: converged
    node: gpu01
    controller: ctl1
    files: {slurm.conf: "{{ slurm_conf_text | hash('sha256') }}"}
"""

RETURN = r"""
state: {description: State of the node as slurmctld has it., type: str, returned: success}
version: {description: Version of the slurmd that runs., type: str, returned: success}
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.deepops_smoke import slurmtext
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_failure,
    packages_apt as node_packages,
    record as node_record,
    services as node_units,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import gpu_check as nvidia_agreement
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import readiness as slurm

UNIT = "slurmd.service"
DRIVER = "/sys/module/nvidia/version"
RESTART = "systemctl restart slurmd (jobs go on)"


class Observation:
    """What one look at the node found. A problem is a sentence; `mendable` ones may go when slurmd restarts."""

    def __init__(self):
        self.problems = []
        self.mendable = False
        self.lasting = False
        self.hint = ""
        self.version = ""
        self.state = slurm.NodeState("")

    def found(self, sentence, mendable=False, hint=""):
        if sentence:
            self.problems.append(sentence)
            self.mendable = self.mendable or mendable
            self.hint = self.hint or hint


def observe(wanted, gpus):
    seen = Observation()
    if check_daemon(seen, wanted):
        check_files(seen, wanted)
    check_registration(seen, wanted, gpus)
    return seen


def check_daemon(seen, wanted):
    """True when slurmd answers; is it in the right version?"""
    status, output = slurm.run(["scontrol", "show", "slurmd"])
    if status:
        seen.found(silence(output), mendable=True)
        return False
    seen.version = slurmtext.config(output).get("Version", "")
    installed = node_packages.installed(["slurmd"]).get("slurmd", "")
    replaced = node_units.runs_a_replaced_program(node_units.main_pid(UNIT))
    seen.found(slurm.version_sentence("slurmd", seen.version, installed, replaced), hint="%s there" % RESTART)
    if wanted["version"] and slurm.release(seen.version) > slurm.release(wanted["version"]):
        seen.found(
            "slurmd %s is newer than the controller's %s: Slurm refuses that" % (seen.version, wanted["version"]),
            hint="bring all nodes to the same release of the operating system, controllers first",
        )
    return True


def silence(output):
    """Why slurmd says nothing."""
    state = node_units.show([UNIT]).get(UNIT, {}).get("ActiveState", "unknown")
    if state == "active":
        return "slurmd runs but does not answer: %s" % slurm.last_line(output)
    return "slurmd does not run (%s): %s" % (state, slurm.last_error(node_units.last_words(UNIT)))


def check_files(seen, wanted):
    """Is the configuration that slurmd fetched the one of this deploy?"""
    for name, digest in sorted(wanted["files"].items()):
        path = os.path.join(wanted["folder"], name)
        facts = node_record.file_facts(path)
        if facts is None:
            seen.found("slurmd has fetched no %s" % name, mendable=True)
        elif facts[0] != digest:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.stat(path).st_mtime))
            seen.found("slurmd still has the %s of %s" % (name, since), mendable=True)


def check_registration(seen, wanted, gpus):
    """Does slurmctld know this node as one that serves, with the GPUs that are there? If not, does munge say why?"""
    status, output = slurm.run(["scontrol", "--oneliner", "show", "node", wanted["node"]])
    seen.state = slurm.parse_nodes(output).get(wanted["node"], seen.state)
    # only a slurmd that runs what it should has a say about GPUs
    differs = gpus.sentence(output) if status == 0 and not seen.problems else ""
    seen.found(differs, hint=nvidia_agreement.HINT)
    seen.lasting = bool(differs) and gpus.lasting
    if status == 0 and seen.state.state and not seen.state.bad:
        return
    refused = munge_problem(wanted)
    seen.found(refused, hint="see `journalctl -u munge`, /etc/default/munge and the clock (chronyc tracking) there")
    if status or not seen.state.state:
        seen.found("" if refused else "%s does not answer it: %s" % (wanted["controller"], slurm.last_line(output)))
    elif not seen.state.rebooted:
        # a slurmd that starts tells slurmctld at once that it is back
        seen.found(seen.state.sentence(), mendable=seen.state.unheard and not refused)


def munge_problem(wanted):
    if not wanted["credential"]:
        return ""
    _status, output = slurm.run(["unmunge"], text=wanted["credential"])
    return slurm.credential_sentence(output, wanted["controller"])


class Repair:
    """What is done about a node that does not come by itself, once each."""

    def __init__(self, node, restart_after):
        self.node = node
        self.restart_after = restart_after
        self.changes = []
        self.refused = ""

    def note(self, type_name, name, action, detail):
        self.changes.append({"kind": type_name, "name": name, "action": action, "detail": detail})

    def done(self, action):
        return any(change["action"] == action for change in self.changes)

    def try_to(self, seen):
        if seen.mendable and time.monotonic() > self.restart_after and not self.done("restart") and not self.refused:
            # it starts for good only when the controller answers: wait here, where it is seen why it does not
            status, output = slurm.run(["systemctl", "restart", "--no-block", UNIT])
            if status:
                self.refused = "it cannot be restarted: %s" % slurm.last_line(output)
            else:
                self.note("unit", UNIT, "restart", "; ".join(seen.problems))
        if not seen.problems and seen.state.rebooted and not self.done("resume"):
            slurm.run(["scontrol", "update", "nodename=%s" % self.node, "state=resume"])
            self.note("node", self.node, "resume", slurm.REBOOTED)


def main():
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "node": {"required": True},
            "controller": {"required": True},
            "version": {"default": ""},
            "credential": {"default": "", "no_log": True},
            "files": {"type": "dict", "default": {}},
            "folder": {"type": "path", "default": "/run/slurm/conf"},
            "gpus": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    if module.check_mode:
        module.exit_json(changed=False, changes=[])
    started = time.monotonic()
    mending = Repair(wanted["node"], started + wanted["timeout"] / 3.0)
    gpus = nvidia_agreement.Comparison(wanted["gpus"], wanted["node"])
    while True:
        seen = observe(wanted, gpus)
        mending.try_to(seen)
        if not seen.problems and not seen.state.bad:
            break
        if seen.lasting or time.monotonic() - started > wanted["timeout"]:
            fail(module, seen, mending)
        time.sleep(0.5)
    with node_failure.fail_on_error(module.fail_json):
        record(wanted)
    module.exit_json(
        changed=bool(mending.changes),
        changes=mending.changes,
        actions=["%s %s: %s" % (change["action"], change["name"], change["detail"]) for change in mending.changes],
        state=seen.state.state,
        version=seen.version,
        deepops_warnings=repair_warnings(mending) + warnings(wanted, seen) + gpus.warnings(),
    )


def repair_warnings(mending):
    """What was done about the node, for a person to wonder why it was necessary."""
    words = {"restart": "slurmd was restarted: %s", "resume": "returned to service: %s"}
    return [words[change["action"]] % change["detail"] for change in mending.changes]


def warnings(wanted, seen):
    """What is right, and still worth a word."""
    if seen.state.state.startswith("DOWN"):
        return ["stays down: %s set it so (%s)" % (seen.state.reason_user, seen.state.reason)]
    if seen.version and slurm.release(seen.version) < slurm.release(wanted["version"]):
        return ["slurmd %s is older than the controller's %s" % (seen.version, wanted["version"])]
    return []


def record(wanted):
    """That it was proven. No hashes: every later change on the controller changes what slurmd has, rightly so."""
    # without the files that were meant there is no proof to remember
    digest = wanted["digest"] if wanted["files"] else ""
    # another driver may see other GPUs
    items = node_record.items(files=[DRIVER] if wanted["gpus"] else [])
    node_record.save(wanted["component"], wanted["step"], digest, items)


def fail(module, seen, mending):
    node_record.save(module.params["component"], module.params["step"], "", {})
    tried = ["a restart of slurmd did not help"] if mending.done("restart") else [mending.refused]
    sentences = (seen.problems or [seen.state.sentence()]) + [text for text in tried if text]
    module.fail_json(
        msg=("" if seen.lasting else "after %d s: " % module.params["timeout"]) + "; ".join(sentences),
        hint=seen.hint or "see `journalctl -u slurmd` there; the next deploy looks at the node again",
        changed=bool(mending.changes),
        changes=mending.changes,
    )


if __name__ == "__main__":
    main()
