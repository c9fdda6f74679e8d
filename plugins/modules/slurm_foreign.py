#!/usr/bin/python
"""Tell whether a node runs a Slurm that is not this cluster's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_foreign
short_description: Find a Slurm that deepopsctl did not make and that was not taken over
description:
  - Only reads. A node that deepopsctl has deployed before is its own. Elsewhere a Slurm that runs, or that is
    configured, must have this cluster's munge key and name; C(deepopsctl takeover) sees to that.
options:
  component: {description: Component whose records mark a node as deployed., type: str, required: true}
  cluster: {description: Slurm's cluster name., type: str, required: true}
  munge_key_hash: {description: SHA-256 of this cluster's munge key., type: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Look for a Slurm that is not this cluster's
  slurm_foreign:
    component: slurm
    cluster: hpc
    munge_key_hash: "{{ munge_key | b64decode | hash('sha256') }}"
"""

RETURN = r"""
foreign: {description: "What is wrong; empty when nothing is.", type: str, returned: always}
"""

from ansible.module_utils import slurm_running
from ansible.module_utils.basic import AnsibleModule


def sentence(component, cluster, key_hash):
    """Why the node's Slurm is not this cluster's; '' when it is, or when there is none."""
    if slurm_running.deployed(component):
        return ""
    running = sorted(slurm_running.daemons())
    path, content = slurm_running.first_file("slurm.conf")
    if not running and (not content or content.startswith(slurm_running.OURS)):
        return ""
    what = "runs %s" % " and ".join(running) if running else "has %s" % path
    name = slurm_running.settings(content).get("clustername", "").lower()
    if name and name != cluster.lower():
        return "%s of the cluster %s, not %s" % (what, name, cluster)
    if slurm_running.munge_key_hash() != key_hash:
        return "%s with another munge key than this cluster's" % what
    return ""


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "cluster": {"required": True},
            # a hash of random bits gives nothing away
            "munge_key_hash": {"required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    found = sentence(wanted["component"], wanted["cluster"], wanted["munge_key_hash"])
    module.exit_json(changed=False, foreign=found)


if __name__ == "__main__":
    main()
