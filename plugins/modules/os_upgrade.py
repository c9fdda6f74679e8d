#!/usr/bin/python
"""Upgrade all packages of a node, but held ones and those that have commands of their own."""

from __future__ import annotations

DOCUMENTATION = r"""
module: os_upgrade
short_description: Upgrade the packages of a node
description:
  - Upgrades all packages that can be without removing one; new kernels come as new packages. Held packages stay.
  - Edited configuration files stay; the result names the new ones that were put next to them. Never asks.
  - Daemons of the cluster are not restarted by their packages. With O(restart) those whose program was replaced are
    restarted at the end, otherwise by the next deploy.
  - Never reboots; the result says why a reboot is needed.
options:
  leave: {description: Packages that stay as they are; names or apt's patterns., type: list, elements: str, default: []}
  refresh: {description: Whether to fetch the package lists first; also in check mode., type: bool, default: true}
  restart: {description: Whether to restart the cluster's daemons that need it., type: bool, default: false}
  lock_wait: {description: Seconds to wait for another package manager., type: int, default: 300}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Upgrade the packages
  deepopsctl.cluster.os_upgrade:
    leave: [slurm*, libslurm*]
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
deepops:
  description:
    - C(os) with C(packages), C(held) and C(left), each a dictionary of package and versions, the present and the later
      one; C(kept_back), packages that apt could upgrade only if it removed others.
    - C(reboot), why the node has to reboot now, C(kernel) that runs, C(installed_kernel), the newest one that is there,
      and C(new_kernel) that the packages install; C(pending), daemons that a deploy restarts; C(conffiles).
  type: dict
  returned: always
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    packages as node_packages,
    packages_upgrade,
    record as node_record,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "leave": {"type": "list", "elements": "str", "default": []},
            "refresh": {"type": "bool", "default": True},
            "restart": {"type": "bool", "default": False},
            "lock_wait": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    params, began = module.params, int(time.time())
    with node_errors.fail_on_error(module.fail_json):
        if params["refresh"]:
            # with the lists from before it would miss what is new, and not say so
            node_packages.refresh(["-o", "APT::Update::Error-Mode=any"], params["lock_wait"])
        others_hold = node_packages.held() - node_packages.guarded()
        options = packages_upgrade.options(params["leave"] + sorted(others_hold))
        simulated = node_packages.simulated_upgrade(options)
        packages = packages_upgrade.upgrades_in(simulated)
        held, left = packages_upgrade.waiting(others_hold), packages_upgrade.waiting(params["leave"])
        restarted = []
        if not module.check_mode:
            # also without any: an installation that was cut off is ended
            node_packages.upgrade(options, params["lock_wait"])
            restarted = packages_upgrade.restart_pending() if params["restart"] else []
        pending = [name for name in node_packages.DAEMONS if node_record.is_pending(name + ".service")]
        answer = {
            "packages": packages,
            "held": held,
            "left": {name: versions for name, versions in left.items() if name not in held},
            "kept_back": [name for name in packages_upgrade.kept_back_in(simulated) if name not in {**held, **left}],
            "reboot": packages_upgrade.why_reboot(),
            "kernel": os.uname().release,
            "installed_kernel": packages_upgrade.installed_kernel(),
            "new_kernel": packages_upgrade.new_kernel(packages),
            "pending": pending,
            "conffiles": [] if module.check_mode else packages_upgrade.left_behind(began),
        }
    changes = [
        node_changes.entry("package", name, "upgrade" if before else "install", detail=f"{before} -> {after}")
        for name, (before, after) in sorted(packages.items())
    ]
    changes += [node_changes.entry("unit", unit, "restart") for unit in restarted]
    module.exit_json(changed=bool(changes), changes=changes, deepops={"os": answer})


if __name__ == "__main__":
    main()
