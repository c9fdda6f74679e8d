#!/usr/bin/python
"""The database and the database user of slurmdbd in a local MariaDB."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_database
short_description: Make sure that slurmdbd's database and login exist
description:
  - Works through MariaDB's local socket as root, which needs no password. SQL goes in on standard input,
    so that the password is never on a command line.
options:
  database: {description: Name of the database., type: str, required: true}
  user: {description: Database user., type: str, required: true}
  password: {description: The user's password., type: str, required: true}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Make slurmdbd's database
  deepopsctl.cluster.slurm_database: {database: slurm_acct_db, user: slurm, password: "{{ slurm_dbd_password }}"}
"""

RETURN = r"""
actions: {description: What was done., type: list, elements: str, returned: always}
changes: {description: The same for programs., type: list, elements: dict, returned: always}
"""

import os
import re
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import changes as node_changes
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.mariadb import is_installed, sql

DATA = "/var/lib/mysql"


def login_works(user, password, database):
    """True when slurmdbd's own login would reach its database."""
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write('[client]\nuser="%s"\npassword="%s"\n' % (user, password))
        # must be the first option; the file is 0600 and gone in a moment
        status, output = sql("SHOW GRANTS;", ["--defaults-extra-file=%s" % path])
        grant = "ALL PRIVILEGES ON `%s`" % database.replace("_", "\\_")
        return status == 0 and (grant in output or "ALL PRIVILEGES ON `%s`" % database in output)
    finally:
        os.unlink(path)


def main():
    module = AnsibleModule(
        argument_spec={
            "database": {"required": True},
            "user": {"required": True},
            "password": {"required": True, "no_log": True},
        },
        supports_check_mode=True,
    )
    database, user, password = (module.params[key] for key in ("database", "user", "password"))
    for name in (database, user):
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            module.fail_json(msg="%r is no plain database name" % name)
    status, present = sql("SHOW DATABASES LIKE '%s';" % database) if is_installed() else (1, "not installed")
    if status and module.check_mode:
        # MariaDB is installed or started before this task is done in earnest
        present, works = os.path.isdir(os.path.join(DATA, database)), True
    elif status:
        module.fail_json(msg="MariaDB does not answer: %s" % present, hint="see `journalctl -u mariadb` on the node")
    else:
        works = bool(present) and login_works(user, password, database)
    if present and works:
        module.exit_json(changed=False, actions=[], changes=[])
    if not module.check_mode:
        quoted = password.replace("\\", "\\\\").replace("'", "\\'")
        status, output = sql(
            "CREATE DATABASE IF NOT EXISTS `%(d)s`;"
            "CREATE USER IF NOT EXISTS '%(u)s'@'localhost';"
            "ALTER USER '%(u)s'@'localhost' IDENTIFIED BY '%(p)s';"
            "GRANT ALL PRIVILEGES ON `%(d)s`.* TO '%(u)s'@'localhost';" % {"d": database, "u": user, "p": quoted}
        )
        if status:
            module.fail_json(msg="MariaDB refused: %s" % output.replace(password, "***"))
    changes = [node_changes.entry("login", user, "set", detail="of database %s" % database)]
    if not present:
        changes.insert(0, node_changes.entry("database", database, "create"))
    module.exit_json(changed=True, actions=["made database %s and its user" % database], changes=changes)


if __name__ == "__main__":
    main()
