#!/usr/bin/python
"""Set quotas on exported directories: limits, grace times and projects, as cluster.yml has them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_quota
short_description: Set limits of users or projects on exported directories
description:
  - Refuses, before anything is touched, a file system that can't have the quotas; says what to do. Nothing is ever
    unmounted here. Where ext4 counts already, limits are made to hold now, and from boot on by a word in C(/etc/fstab).
  - Sets what differs, and takes back limits that an earlier call set and this one does not want. Limits that somebody
    else set are left alone, but those of accounts that the default is for.
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
    digest: "{{ deepops_digest }}"
    exports: "{{ storage_mounts | deepopsctl.cluster.storage_quotas(inventory_hostname) }}"
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
differences:
  description: By directory of an export, the C(differences) that a deploy would set, or the C(problem).
  type: dict
  returned: "with O(compare=true)"
waiting: {description: Directories of projects that are not there yet., type: list, elements: str, returned: always}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command,
    errors as node_errors,
    files as node_files,
    packages_apt as node_packages,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import quota as storage_quota

PACKAGES = ("quota", "rpcbind")
DISTRIBUTIONS = "quotarpc.service"
UNIT = "deepopsctl-rquotad.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
# an emulated host under load was seen to take more than a minute
PATIENCE_S = 180


def systemctl(*words):
    result = command.run_merged(["systemctl", *words], PATIENCE_S)
    if not result.ok:
        raise node_errors.HintedError(
            "systemctl %s: %s" % (" ".join(words), result.message), "see `journalctl -u %s`" % UNIT
        )


def serve_rquota(params, noted):
    """Let other nodes ask for limits of users."""
    install_missing(params["lock_wait"], noted)
    content = params["rquotad"].encode("utf-8")
    if not noted.dry and node_files.read(UNIT_FILE) != content:
        # what is cut off before the restart is not forgotten
        node_record.mark_pending(UNIT, UNIT_FILE)
    changed = bool(node_files.ensure(noted, UNIT_FILE, content)) or node_record.is_pending(UNIT)
    shown = node_services.show([DISTRIBUTIONS, UNIT])
    theirs = node_services.is_active(shown[DISTRIBUTIONS]) or node_services.is_enabled(shown[DISTRIBUTIONS])
    if theirs:
        noted.did("unit", DISTRIBUTIONS, "stop")
    running = shown[UNIT].get("ActiveState") == "active"
    if changed or not running:
        noted.did("unit", UNIT, "restart" if running else "start")
    if noted.dry:
        return
    # it came with the package, and starts its daemon only where /etc/fstab speaks of quotas
    if theirs:
        systemctl("disable", "--now", "--quiet", DISTRIBUTIONS)
    if changed:
        systemctl("daemon-reload")
    if changed or not node_services.is_enabled(shown[UNIT]):
        systemctl("enable", "--quiet", UNIT)
    if changed or not running:
        systemctl("restart", UNIT)
    node_record.clear_pending(UNIT)


def install_missing(wait, noted):
    present = node_packages.installed(list(PACKAGES))
    names = [name for name in PACKAGES if name not in present]
    for name in names:
        noted.did("package", name, "install")
    if noted.dry or not names:
        return
    try:
        node_packages.install(names, wait)
    except node_packages.PackageError as error:
        raise node_errors.HintedError("cannot install %s: %s" % (" ".join(names), error), error.hint) from error


def stop_rquota(noted):
    """Take the unit away again."""
    if not os.path.exists(UNIT_FILE):
        return
    noted.did("unit", UNIT, "stop")
    if not noted.dry:
        systemctl("disable", "--now", "--quiet", UNIT)
    node_files.remove(noted, UNIT_FILE)
    if not noted.dry:
        systemctl("daemon-reload")
        node_record.clear_pending(UNIT)


def converge(module, noted):
    """Everything in its order; returns the directories that have to be made first."""
    params = module.params
    files, waiting = storage_quota.converge(params["exports"], storage_quota.Host(), noted)
    if params["rquotad"]:
        serve_rquota(params, noted)
    else:
        stop_rquota(noted)
    if not noted.dry:
        # what waits is looked at again by the next deploy
        digest = "" if waiting else params["digest"]
        units = {UNIT: True} if params["rquotad"] else {}
        files = [*files, *([UNIT_FILE] if params["rquotad"] else [])]
        node_record.save(params["component"], params["step"], digest, node_record.items(files=files, units=units))
    return waiting


def main():
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
    noted = node_changes.Noted(module.check_mode)
    with node_errors.fail_on_error(module.fail_json, "quotas: %s"):
        waiting = converge(module, noted)
    for path in waiting:
        module.warn("%s does not exist: whoever gives a project its directory has to make it" % path)
    module.exit_json(**noted.result(waiting=waiting))


if __name__ == "__main__":
    main()
