#!/usr/bin/python
"""Bring the NVIDIA driver that is installed to another branch."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_branch
short_description: Exchange the packages of NVIDIA's driver for those of another branch
description:
  - Refuses a node on which a job runs or can start. Stops the daemons that hold the GPUs, exchanges all packages of the
    driver in one transaction (also for older ones), and unloads the kernel modules. They are loaded, and the packages
    held again, by M(deepopsctl.cluster.nvidia_driver), which also starts the daemons.
  - Kernel modules that are in use stay loaded; M(deepopsctl.cluster.nvidia_driver) says then that a reboot is needed.
options:
  node: {description: The node's name in Slurm., type: str, required: true}
  branch: {description: The branch that is wanted., type: str, required: true}
  before: {description: Version of the driver that is installed., type: str, required: true}
  packages: {description: Packages that make the driver., type: list, elements: str, required: true}
  lock_wait: {description: Seconds to wait for another package manager., type: int, default: 300}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Bring the driver to another branch
  deepopsctl.cluster.nvidia_branch:
    node: gpu07
    branch: "595"
    before: 580.95.05
    packages: [nvidia-driver-cuda, nvidia-kernel-open-dkms]
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
in_use: {description: Why the old kernel modules are still loaded., type: str, returned: always}
"""

import os
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    packages_apt as node_packages,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.errors import run
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import (
    branch as nvidia_branch,
    facts as nvidia_facts,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import idle as slurm_idle


def stop_daemons():
    """Those that run are stopped, and noted to be started by whoever loads the driver."""
    for unit, facts in sorted(node_services.show(list(nvidia_branch.DAEMONS)).items()):
        if node_services.is_active(facts):
            node_record.mark_pending(unit, "another branch of the driver")
            run(["systemctl", "stop", unit])


def reinstall(old):
    """Hold and start what there is of the old driver."""
    run(["apt-mark", "hold"] + sorted(node_packages.installed(list(old))))
    for unit in nvidia_branch.DAEMONS:
        if node_record.is_pending(unit):
            subprocess.run(["systemctl", "start", unit], check=False)
            node_record.clear_pending(unit)


def unload():
    """Remove the kernel modules; why they can't be, '' when they are gone."""
    if os.path.exists(nvidia_facts.CONTAINER):
        # they are the host's
        return ""
    for name in nvidia_branch.KERNEL_MODULES:
        if os.path.isdir("/sys/module/%s" % name):
            done = subprocess.run(
                ["rmmod", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False
            )
            if done.returncode:
                return " ".join(done.stdout.split())
    return ""


def exchange(module, wanted):
    """(changes, why the old modules are still there)."""
    old = nvidia_branch.family(node_packages.installed(["*nvidia*", "*cuda*"]), wanted["before"])
    detail = "%s -> branch %s" % (wanted["before"], wanted["branch"])
    if module.check_mode:
        names = nvidia_branch.of_the_driver(wanted["packages"])
        return [node_changes.entry("package", name, "exchange", detail=detail) for name in names], ""
    busy = slurm_idle.why_busy(wanted["node"])
    if busy:
        module.fail_json(
            msg="%s, and jobs would lose their GPUs" % busy,
            hint="drain the node, wait for its jobs, deploy again; or let deploy do it: nvidia_driver_drain",
        )
    node_packages.refresh([], wanted["lock_wait"])
    known = node_packages.versions(sorted(set(old) | set(wanted["packages"])))
    offered = nvidia_branch.offered(known, wanted["branch"])
    transaction = nvidia_branch.transaction(old, wanted["packages"], offered)
    if transaction.missing:
        module.fail_json(
            msg="the package sources have no %s of branch %s" % (", ".join(transaction.missing), wanted["branch"]),
            hint="nothing was changed; see `apt-cache policy` there, or set another nvidia_driver_branch",
        )
    stop_daemons()
    run(["apt-mark", "unhold"] + sorted(old))
    try:
        node_packages.install(["--allow-downgrades"] + transaction.arguments, wanted["lock_wait"])
    except node_packages.PackageError:
        # apt begins nothing that it can't end: the old driver serves on
        reinstall(old)
        raise
    changes = [
        node_changes.entry("package", name, "exchange", detail="%s -> %s" % (old.get(name, "none"), version))
        for name, version in sorted(transaction.versions.items())
    ]
    changes += [node_changes.entry("package", name, "remove", detail=old[name]) for name in transaction.removed]
    return changes, unload()


def main():
    module = AnsibleModule(
        argument_spec={
            "node": {"required": True},
            "branch": {"required": True},
            "before": {"required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "lock_wait": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    with node_errors.fail_on_error(module.fail_json, "the driver can't be exchanged: %s"):
        changes, in_use = exchange(module, module.params)
    module.exit_json(changed=bool(changes), changes=changes, in_use=in_use)


if __name__ == "__main__":
    main()
