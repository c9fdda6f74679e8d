#!/usr/bin/python
"""Ask a node whether it still is what the last good deploy made it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_gate
short_description: Compare a node with the record of its last good deploy
description:
  - Reads the records that M(node_state) and M(slurm_config) left, and compares them with reality, which is
    package versions, file hashes with owners and modes, and the state of the units.
  - Returns the few facts that roles choose their variables by, so that no facts need to be gathered.
options:
  component: {description: Component to look at., type: str, required: true}
  digest: {description: Hash of the desired state; empty never matches., type: str, default: ""}
  steps: {description: Steps that must have a record with that digest., type: list, elements: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Compare the node with its last good deploy
  node_gate:
    component: slurm
    digest: "{{ deepops_digest }}"
    steps: [packages, hosts, munge, slurmd]
"""

RETURN = r"""
clean: {description: True when nothing has to be done., type: bool, returned: always}
reasons: {description: Why not, a sentence each., type: list, elements: str, returned: always}
"""

from ansible.module_utils import node_packages, node_platform, node_record, node_units
from ansible.module_utils.basic import AnsibleModule


def differences(record):
    """Sentences for everything that is no longer as recorded."""
    items = record["items"]
    found = []
    present = node_packages.installed(list(items["packages"]))
    for name, version in items["packages"].items():
        if present.get(name) != version:
            found.append("package %s is %s, was %s" % (name, present.get(name, "missing"), version))
    for path, facts in items["files"].items():
        if node_record.file_facts(path) != facts:
            found.append("%s was changed or removed" % path)
    for path, facts in items["directories"].items():
        if node_record.directory_facts(path) != facts:
            found.append("%s has another owner or mode, or is gone" % path)
    return found + unit_differences(items["units"])


def unit_differences(units):
    found = []
    shown = node_units.show(list(units))
    for name, running in units.items():
        properties = shown.get(name, {})
        blocked = properties.get("ConditionResult") == "no" and properties.get("ActiveState") == "inactive"
        if running and properties.get("ActiveState") != "active" and not blocked:
            found.append("%s is %s" % (name, properties.get("ActiveState", "unknown")))
        elif running and not node_units.is_enabled(properties):
            found.append("%s is not enabled" % name)
        elif not running and properties.get("ActiveState") == "active":
            found.append("%s runs" % name)
        if node_record.is_pending(name):
            found.append("%s still has to restart" % name)
    return found


def reasons(component, digest, steps):
    """Why the node needs the component's steps; empty when it does not."""
    if not digest:
        return ["a full run was asked for"]
    records = {step: node_record.load(component, step) for step in steps}
    if not any(records.values()):
        return ["never deployed"]
    stale = [step for step, record in records.items() if not record or record["digest"] != digest]
    if stale:
        return ["the desired state changed, or the last deploy did not finish: %s" % ", ".join(stale)]
    return [sentence for record in records.values() for sentence in differences(record)]


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "digest": {"default": ""},
            "steps": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    found = reasons(module.params["component"], module.params["digest"], module.params["steps"])
    facts = dict(node_platform.os_release(), **node_platform.cgroup_facts())
    module.exit_json(changed=False, clean=not found, reasons=found, ansible_facts=facts)


if __name__ == "__main__":
    main()
