#!/usr/bin/python
"""Stop a machine from taking part in the cluster: daemons off, the cluster's secret and our records gone."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_retire
short_description: Stop and disable units, remove files and records
options:
  units: {description: Units to stop and disable; unknown ones are let pass., type: list, elements: str, default: []}
  files: {description: Files to remove., type: list, elements: path, default: []}
  component: {description: Component whose records are forgotten; empty for none., type: str, default: ""}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Take the node out
  deepopsctl.cluster.node_retire:
    units: [slurmd.service]
    component: slurm
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import glob
import os
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    record as node_record,
    services as node_services,
)


def stop(units, check):
    """Stop and disable what runs or starts at boot."""
    changes = []
    for name, facts in node_services.show(units).items():
        if facts.get("LoadState") == "not-found":
            continue
        enabled = facts.get("UnitFileState") in ("enabled", "enabled-runtime")
        if not enabled and not node_services.is_active(facts):
            continue
        if not check:
            subprocess.run(["systemctl", "disable", "--now", "--quiet", name], timeout=120, check=True)
        changes.append({"kind": "unit", "name": name, "action": "stop", "detail": "stopped and disabled"})
    return changes


def remove(files, check):
    changes = []
    for path in files:
        if os.path.exists(path):
            if not check:
                os.unlink(path)
            changes.append({"kind": "file", "name": path, "action": "remove", "detail": ""})
    return changes


def forget(component, check):
    """Remove the records of a component: deepopsctl does not manage its files any more."""
    records = glob.glob(os.path.join(node_record.STATE, "records", "%s.*.json" % component)) if component else []
    if records and not check:
        for path in records:
            os.unlink(path)
    return [{"kind": "record", "name": component, "action": "remove", "detail": ""}] if records else []


def main():
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "list", "elements": "path", "default": []},
            "component": {"default": ""},
        },
        supports_check_mode=True,
    )
    params, check = module.params, module.check_mode
    try:
        changes = stop(params["units"], check) + remove(params["files"], check) + forget(params["component"], check)
    except (OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg="the node could not be taken out: %s" % error)
    module.exit_json(changed=bool(changes), changes=changes)


if __name__ == "__main__":
    main()
