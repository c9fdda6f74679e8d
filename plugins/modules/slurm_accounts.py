#!/usr/bin/python
"""Accounts and users in Slurm's accounting database."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_accounts
short_description: Make sure that accounts and user associations exist
description:
  - Adds what is missing through C(sacctmgr); never removes or changes anything, a site's own accounts stay.
options:
  cluster: {description: Slurm's cluster name., type: str, required: true}
  accounts: {description: Accounts., type: list, elements: str, default: []}
  users:
    description: Users and the account each of them may charge.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Login name., type: str, required: true}
      account: {description: Account., type: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Let the deploying user run jobs
  slurm_accounts:
    cluster: hpc
    accounts: [default]
    users: [{name: ubuntu, account: default}]
"""

RETURN = r"""
actions: {description: What was added., type: list, elements: str, returned: always}
"""

import shutil
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule


def sacctmgr(*words):
    """(exit status, output) of sacctmgr."""
    result = subprocess.run(
        ["sacctmgr", "--immediate", "--noheader", "--parsable2"] + list(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stdout.strip()


def rows(module, *words):
    """Lines of a `sacctmgr show`, tolerating a slurmdbd that is just starting."""
    deadline = time.monotonic() + 30
    while True:
        status, output = sacctmgr("show", *words)
        if status == 0:
            return [line.split("|") for line in output.splitlines()]
        if time.monotonic() > deadline:
            module.fail_json(
                msg="sacctmgr show %s: %s" % (words[0], output),
                hint="see `journalctl -u slurmdbd` on the accounting host",
            )
        time.sleep(0.5)


def add(module, *words):
    status, output = sacctmgr("add", *words)
    # sacctmgr ends with 1 when there was nothing to add
    if status and "Nothing new added" not in output:
        module.fail_json(msg="sacctmgr add %s: %s" % (" ".join(words), output))


def cluster_registered(module, cluster, seconds=20):
    """slurmctld registers the cluster itself moments after its start; returns whether it has."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if [cluster] in rows(module, "cluster", "format=cluster"):
            return True
        time.sleep(0.3)
    return False


def missing(module, cluster):
    """(accounts, users) that the database does not know for this cluster."""
    present = rows(module, "association", "where", "cluster=%s" % cluster, "format=account,user")
    known_accounts = {row[0] for row in present}
    known_users = {(row[1], row[0]) for row in present if len(row) > 1 and row[1]}
    accounts = [name for name in module.params["accounts"] if name not in known_accounts]
    users = [user for user in module.params["users"] if (user["name"], user["account"]) not in known_users]
    return accounts, users


def main():
    module = AnsibleModule(
        argument_spec={
            "cluster": {"required": True},
            "accounts": {"type": "list", "elements": "str", "default": []},
            "users": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"required": True}, "account": {"required": True}},
            },
        },
        supports_check_mode=True,
    )
    cluster = module.params["cluster"]
    if module.check_mode and not shutil.which("sacctmgr"):
        module.exit_json(changed=True, actions=["would add accounts and users"])
    if not cluster_registered(module, cluster) and not module.check_mode:
        add(module, "cluster", cluster)
    accounts, users = missing(module, cluster)
    if not module.check_mode:
        for name in accounts:
            add(module, "account", name, "cluster=%s" % cluster, "description=%s" % name)
        for user in users:
            add(module, "user", user["name"], "account=%s" % user["account"], "cluster=%s" % cluster)
    actions = ["added account %s" % name for name in accounts]
    actions += ["added user %s to account %s" % (user["name"], user["account"]) for user in users]
    module.exit_json(changed=bool(actions), actions=actions)


if __name__ == "__main__":
    main()
