#!/usr/bin/python
"""Configure IMEX for an NVLink domain, or remove it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_imex
short_description: IMEX's list of nodes, and its service
description:
  - Writes the list, the same on all nodes of the domain, and keeps C(nvidia-imex) running; its package is held.
  - A service that runs is stopped, for another list or for good, only where no job runs or can start; else this fails.
  - Where no driver runs, a service that does not start is not an error.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  domain: {description: Name of its NVLink domain., type: str, default: ""}
  peers: {description: Addresses of all nodes of it; empty wants no IMEX., type: list, elements: str, default: []}
  hold: {description: Packages that a deploy alone may change., type: list, elements: str, default: []}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: IMEX
  deepopsctl.cluster.nvidia_imex:
    component: nvidia
    step: imex
    node: nvl01
    domain: rack1
    peers: [10.0.1.1, 10.0.1.2]
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
deepops:
  description: C(blocked), why it would be refused, each with C(message) and C(hint).
  type: dict
  returned: in check mode
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command,
    errors as node_errors,
    files as node_files,
    ownership as node_ownership,
    packages as node_packages,
    record as node_record,
    removal as node_removal,
    services as node_services,
    step as node_step,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_facts
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import node_jobs as slurm_node_jobs

DIRECTORY = "/etc/nvidia-imex"
FILE = DIRECTORY + "/nodes_config.cfg"
UNIT = "nvidia-imex.service"
# the step that installed the package
PACKAGES = "imex_packages"
# it may wait for the other nodes of its domain: that it waits is enough
START_S = 20


class Step(node_step.Step):
    """One call, and the unit as it is."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.unit = node_services.show([UNIT])[UNIT]

    @property
    def runs(self) -> bool:
        return node_services.is_active(self.unit)

    def own(self, packages: list[str], files: list[str]) -> None:
        """Record what is managed, before anything is done."""
        self.owned = {"packages": packages, "files": files}
        self.save_owned()

    def demand_no_jobs(self, what: str) -> None:
        busy = slurm_node_jobs.why_busy(self.wanted["node"])
        if busy:
            message = f"{what} on {self.wanted['node']}, and {busy}"
            hint = "drain the nodes of the domain, wait for their jobs, deploy again"
            self.blocked.append((message, hint))
            if not self.dry:
                raise node_errors.HintedError(message, hint)


def mark(step: Step, words: str) -> None:
    """Hold, or no longer hold, the packages that are not (or are) held."""
    held = node_packages.held()
    names = step.wanted["hold"]
    if words == "unhold":
        # the driver's role holds all of its version, at every run: also what an earlier one was cut off from removing
        names = node_ownership.load(step.wanted["component"], PACKAGES)["packages"]
    for name in [name for name in names if (name in held) != (words == "hold")]:
        step.noted.did("hold", name, words)
        if not step.dry:
            node_packages.mark(words, [name])


def stop(step: Step) -> None:
    step.noted.did("unit", UNIT, "stop")
    if not step.dry:
        command.require(["systemctl", "stop", UNIT])


def start(step: Step) -> None:
    """Enabled, and running; raises HintedError where a driver runs and it does not."""
    if not node_services.is_enabled(step.unit):
        step.noted.did("unit", UNIT, "enable")
        if not step.dry:
            command.require(["systemctl", "enable", "--quiet", UNIT])
    if step.runs:
        return
    step.noted.did("unit", UNIT, "start")
    if step.dry:
        return
    command.require(["systemctl", "daemon-reload"])
    command.run(["systemctl", "reset-failed", "--quiet", UNIT])
    command.require(["systemctl", "start", "--no-block", UNIT])
    properties = node_services.wait_until_active(UNIT, START_S)
    if not node_services.is_active(properties) and nvidia_facts.loaded()["version"]:
        raise node_errors.HintedError(
            f"{UNIT} does not run: {node_services.journal_tail(UNIT)}",
            f"is it of the driver's version, and are the nodes in {FILE} those of this NVLink domain?",
        )


def install(step: Step) -> None:
    """The list of nodes, and the service that goes by it."""
    content = "".join(peer + "\n" for peer in step.wanted["peers"]).encode()
    known = step.unit.get("LoadState") != "not-found"
    if not known and not step.dry:
        raise node_errors.HintedError(
            f"the NVLink domain {step.wanted['domain']} needs nvidia-imex, which is not installed",
            "install it in the driver's version, as the driver was; or let deploy install both: nvidia_driver_source",
        )
    if node_files.read(FILE) != content and step.runs:
        step.demand_no_jobs(f"the nodes of the NVLink domain {step.wanted['domain']} change")
        stop(step)
        step.unit = dict(step.unit, ActiveState="inactive")
    step.own(step.wanted["hold"], [FILE])
    node_files.ensure(step.noted, FILE, content)
    mark(step, "hold")
    start(step)


def remove(step: Step) -> None:
    """Neither list nor service, where they came this way."""
    is_managed = FILE in step.owned["files"]
    if is_managed and step.runs:
        step.demand_no_jobs("IMEX is to go")
        stop(step)
    if is_managed and node_services.is_enabled(step.unit) and not step.dry:
        command.require(["systemctl", "disable", "--quiet", UNIT])
    mark(step, "unhold")
    if is_managed:
        node_files.remove(step.noted, FILE)
        if not step.dry:
            node_removal.remove_empty(DIRECTORY, (DIRECTORY,))
        step.own([], [])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "node": {"required": True},
            "domain": {"default": ""},
            "peers": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    params = module.params
    with node_errors.fail_on_error(module.fail_json):
        step = Step(module)
        if params["peers"]:
            install(step)
        else:
            remove(step)
        if not module.check_mode:
            runs = node_services.is_active(node_services.show([UNIT])[UNIT])
            record = node_record.items(files=[FILE], units={UNIT: True} if params["peers"] and runs else {})
            step.save_record(record)
    module.exit_json(**step.noted.result(**(node_changes.refused(step.blocked) if module.check_mode else {})))


if __name__ == "__main__":
    main()
