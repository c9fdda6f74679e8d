#!/usr/bin/python
"""Keep a copy of a hand-made Slurm configuration, and take it out of the way of configless nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_set_aside
short_description: Set aside the Slurm configuration of before a take-over
description:
  - Every file that deepopsctl did not write is renamed with a suffix. Where nothing replaces it
    (a compute node, which fetches its configuration) it goes out of the way; Slurm's commands would read it.
options:
  folder: {description: Slurm's configuration directory., type: path, default: /etc/slurm}
  replaced: {description: Whether deepopsctl writes these files itself on this node., type: bool, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Set aside the configuration of before
  deepopsctl.cluster.slurm_set_aside: {replaced: false}
"""

RETURN = r"""
actions: {description: What was done., type: list, elements: str, returned: always}
changes: {description: The same as data., type: list, elements: dict, returned: always}
"""

import os
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import detect as slurm_detect

NAMES = ("slurm.conf", "gres.conf", "cgroup.conf", "plugstack.conf", "slurmdbd.conf")
SUFFIX = ".before-deepopsctl"


def unmanaged(directory):
    """Paths of files that deepopsctl did not write."""
    paths = [os.path.join(directory, name) for name in NAMES]
    contents = [(path, node_files.read(path)) for path in paths]
    return [path for path, content in contents if content is not None and not content.startswith(slurm_detect.OURS)]


def set_aside(path, replaced):
    """Copy or move one file; nobody else may ever read the copy, for slurmdbd.conf holds a password."""
    if not replaced:
        os.replace(path, path + SUFFIX)
        return
    facts = os.stat(path)
    mode = stat.S_IMODE(facts.st_mode) & (0o600 if path.endswith("slurmdbd.conf") else 0o777)
    node_files.write(path + SUFFIX, node_files.read(path), (facts.st_uid, facts.st_gid), mode, [])


def main():
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "default": "/etc/slurm"},
            "replaced": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    replaced = module.params["replaced"]
    paths = [
        path
        for path in unmanaged(module.params["folder"])
        if not replaced or node_files.read(path) != node_files.read(path + SUFFIX)
    ]
    if not module.check_mode:
        for path in paths:
            set_aside(path, replaced)
    changes = [{"kind": "file", "name": path, "action": "write", "detail": "kept as *%s" % SUFFIX} for path in paths]
    module.exit_json(changed=bool(paths), actions=["kept %s%s" % (path, SUFFIX) for path in paths], changes=changes)


if __name__ == "__main__":
    main()
