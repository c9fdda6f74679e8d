#!/usr/bin/python
"""Slurm's user with the id that the cluster's other nodes have."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_user
short_description: Make sure that the user slurm has a given id, before a package chooses one
description:
  - Makes user and group where they are missing. One that is there with another id is an error, for its files
    and its daemons would have to change too.
options:
  uid: {description: The user's id., type: int, required: true}
  gid: {description: "The group's id; 0 is the user's own.", type: int, default: 0}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Make Slurm's user
  deepopsctl.cluster.slurm_user: {uid: 22078}
"""

RETURN = r"""
actions: {description: What was done., type: list, elements: str, returned: always}
changes: {description: The same as data., type: list, elements: dict, returned: always}
"""

import grp
import pwd
import subprocess

from ansible.module_utils.basic import AnsibleModule

NAME = "slurm"


def command(module, argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    if done.returncode:
        module.fail_json(msg="%s: %s" % (argv[0], done.stdout.strip()), hint="is the id taken? See /etc/passwd")


def check_present(module, uid):
    """Whether the user is there with this id; fails where it has another."""
    try:
        current = pwd.getpwnam(NAME).pw_uid
    except KeyError:
        return False
    if current != uid:
        module.fail_json(
            msg="the user %s has the id %d here, %d in the cluster" % (NAME, current, uid),
            hint="stop Slurm on the node, then usermod --uid %d %s, and chown its files" % (uid, NAME),
        )
    return True


def main():
    module = AnsibleModule(
        argument_spec={"uid": {"type": "int", "required": True}, "gid": {"type": "int", "default": 0}},
        supports_check_mode=True,
    )
    uid = module.params["uid"]
    gid = module.params["gid"] or uid
    if check_present(module, uid):
        module.exit_json(changed=False, actions=[], changes=[])
    if not module.check_mode:
        try:
            grp.getgrnam(NAME)
        except KeyError:
            command(module, ["groupadd", "--gid", str(gid), NAME])
        home = ["--home-dir", "/nonexistent", "--no-create-home", "--shell", "/usr/sbin/nologin"]
        command(module, ["useradd", "--uid", str(uid), "--gid", NAME] + home + [NAME])
    changes = [{"kind": "account", "name": NAME, "action": "add", "detail": "user id %d" % uid}]
    module.exit_json(changed=True, actions=["made the user %s with id %d" % (NAME, uid)], changes=changes)


if __name__ == "__main__":
    main()
