#!/usr/bin/python
"""A login of MariaDB for an account of this machine, by the socket, with no right to any data."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mariadb_login
short_description: Let an account of this machine log in to MariaDB, to see how it does
description:
  - MariaDB takes the kernel's word for who it is, so there is no password. The login has no right to any data; the
    server's counters and settings are for everybody who may log in.
  - A login of that name that somebody else made is left as it is. One that an earlier call made goes with
    I(state=absent).
  - Where MariaDB is not there, or does not answer, nothing is done; the next deploy tries again.
options:
  component: {description: Component that it is for., type: str, required: true}
  user: {description: The account., type: str, required: true}
  state: {description: Whether there is to be such a login., type: str, choices: [present, absent], required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Let the exporter in
  deepopsctl.cluster.mariadb_login: {component: monitoring, user: prometheus, state: present}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    ownership as node_ownership,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import mariadb

STEP = "login"


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"required": True},
            "user": {"required": True},
            "state": {"choices": ["present", "absent"], "required": True},
        },
        supports_check_mode=True,
    )
    user, wanted = module.params["user"], module.params["state"] == "present"
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", user):
        module.fail_json(msg="%r is no plain account name" % user)
    owned = node_ownership.load(module.params["component"], STEP)
    noted = node_changes.Noted(module.check_mode)
    failed, existing = 1, ""
    if mariadb.is_installed():
        failed, existing = mariadb.sql("SELECT 1 FROM mysql.user WHERE user = '%s' AND host = 'localhost';" % user)  # noqa: S608 (a plain name, see above)
    if failed and module.check_mode:
        # it comes, or starts, before this is done in earnest
        failed, existing = 0, user in owned["logins"]
    if not failed and wanted != bool(existing) and (wanted or user in owned["logins"]):
        ensure(module, noted, user, wanted)
    if not module.check_mode and (noted.changes or not wanted):
        owned["logins"] = [user] if wanted else []
        node_ownership.save(module.params["component"], STEP, owned)
    module.exit_json(changed=bool(noted.changes), changes=noted.changes)


def ensure(module, noted, user, wanted):
    """Make the login, or drop it."""
    noted.did("login", user, "set" if wanted else "remove", detail="of MariaDB, to see how it does")
    if module.check_mode:
        return
    name = "'%s'@'localhost'" % user
    failed, output = mariadb.sql(
        "CREATE USER %s IDENTIFIED VIA unix_socket;" % name if wanted else "DROP USER %s;" % name
    )
    if failed:
        module.fail_json(msg="MariaDB refused: %s" % output, hint="see `journalctl -u mariadb` on the node")


if __name__ == "__main__":
    main()
