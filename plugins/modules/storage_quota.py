#!/usr/bin/python
"""Set quotas on exported directories: limits, grace times and projects, as cluster.yml has them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_quota
short_description: Set limits of users or projects on exported directories
description:
  - Refuses, before anything is touched, a file system that can't have the quotas; says what to do. Nothing is ever
    unmounted here. Where ext4 counts already, limits are made to hold now, and from boot on by a word in C(/etc/fstab).
  - Sets what differs, and takes back limits that an earlier call set and this one does not want. Limits that others
    set are left alone, but those of accounts that the default is for.
  - Projects get their number on everything in their directory, and lines of their own in C(/etc/projects) and
    C(/etc/projid).
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  exports:
    description: What deepopsctl.storage.quota.served() gives for this node.
    type: list
    elements: dict
    default: []
  rquotad:
    description: Text of the unit that answers when other nodes ask; empty removes it, its package stays.
    type: str
    default: ""
  compare:
    description: Whether to set nothing, and to return what differs instead.
    type: bool
    default: false
  lock_wait: {description: Seconds to wait for another package manager on the node., type: int, default: 300}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Limits of the exports
  deepopsctl.cluster.storage_quota:
    component: storage
    step: quota
    digest: "{{ deepops_digests.storage }}"
    exports: "{{ storage_mounts | deepopsctl.cluster.storage_quotas(inventory_hostname) }}"
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
differences:
  description: By directory of an export, the C(differences) that a deploy would set, or the C(problem).
  type: dict
  returned: "with O(compare=true)"
waiting: {description: Directories that are not a project yet., type: list, elements: str, returned: always}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_errors,
    record as node_record,
    resources as node_resources,
    step as node_step,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import quota as storage_quota

# what node_resources.ensure_packages goes by
PACKAGES = {
    "packages": {"quota": "", "rpcbind": ""},
    "archives": {},
    "hint": "",
    "hold_units": [],
    "name_prefix": "",
    "restart_on_upgrade": [],
    "restart_except": [],
    "stop_units": [],
    "upstream": "",
}
DISTRIBUTIONS = "quotarpc.service"
UNIT = "deepopsctl-rquotad.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT


def serve_rquota(step: node_step.Step) -> None:
    """Let other nodes ask for limits of users."""
    node_resources.ensure_packages(step)
    content = step.wanted["rquotad"]
    file = {"path": UNIT_FILE, "content": content, "mode": "0644", "owner": "root", "group": "root"}
    unit = {"name": UNIT, "running": True, "restart_on": [UNIT_FILE], "port": None, "optional": False}
    changed = node_resources.ensure_file(step, dict(file, block=None, secret_base64=None, validate=[]), [unit])
    # it came with the package, and starts its daemon only where /etc/fstab speaks of quotas
    units = [{"name": DISTRIBUTIONS, "running": False}, unit]
    node_resources.ensure_units(step, units, [UNIT_FILE] if changed else [], [UNIT])


def stop_rquota(step: node_step.Step) -> None:
    """Remove the unit; its packages stay."""
    if not os.path.exists(UNIT_FILE):
        return
    node_resources.ensure_units(step, [{"name": UNIT, "running": False}], [], [])
    node_resources.ensure_absent(step, UNIT_FILE)
    if not step.dry:
        node_resources.run_systemctl(step, ["daemon-reload"], "")
        node_record.clear_pending(UNIT)


def converge(step: node_step.Step) -> dict[str, str]:
    """Everything in its order; returns a sentence for each directory that is not a project yet."""
    wanted = step.wanted
    managed, waiting = storage_quota.converge(wanted["exports"], storage_quota.Host(), step.noted)
    if wanted["rquotad"]:
        serve_rquota(step)
    else:
        stop_rquota(step)
    if waiting:
        # looked at again by the next deploy
        wanted["digest"] = ""
    served = bool(wanted["rquotad"])
    files = [*managed, *([UNIT_FILE] if served else [])]
    step.save_record(node_record.items(files=files, units={UNIT: True} if served else {}))
    return waiting


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "exports": {"type": "list", "elements": "dict", "default": []},
            "rquotad": {"default": ""},
            "compare": {"type": "bool", "default": False},
            "lock_wait": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    if module.params["compare"]:
        host, exports = storage_quota.Host(), module.params["exports"]
        compared = {export["path"]: storage_quota.differences(export, host) for export in exports}
        module.exit_json(changed=False, differences=compared)
    step = node_step.Step(module, {**module.params, **PACKAGES})
    with node_errors.fail_on_error(step.fail, "quotas: %s"):
        waiting = converge(step)
    for sentence in waiting.values():
        module.warn(sentence)
    module.exit_json(**step.noted.result(waiting=list(waiting)))


if __name__ == "__main__":
    main()
