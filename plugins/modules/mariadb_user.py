#!/usr/bin/python
"""A user of the MariaDB on this node: slurmdbd's with its database, or one that only logs in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mariadb_user
short_description: Create a database with its user, or a login without rights, in the local MariaDB
description:
  - Works through MariaDB's socket as root, which needs no password. SQL goes in on standard input, so that no password
    is ever on a command line.
  - With O(database), the database exists, and O(user) has all rights on it with O(password).
  - Without, O(user) logs in as the system account of that name, without a password and without rights to any data;
    the server's counters and settings are for everybody who may log in. A login of that name that somebody else
    created is left as it is, one that an earlier call created is removed with O(state=absent). Where MariaDB is not
    there, or does not answer, nothing is done; the next deploy tries again.
options:
  user: {description: Name of the user at localhost., type: str, required: true}
  database: {description: Name of its database., type: str, default: ""}
  password: {description: The user's password., type: str, default: ""}
  component: {description: Component that a login without a database is for., type: str, default: ""}
  state:
    description: Whether a login without a database exists.
    type: str
    choices: [present, absent]
    default: present
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Create slurmdbd's database
  deepopsctl.cluster.mariadb_user: {database: slurm_acct_db, user: slurm, password: "{{ slurm_dbd_password }}"}

- name: Let the exporter log in
  deepopsctl.cluster.mariadb_user: {component: monitoring, user: prometheus}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
"""

import os
import re
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command as node_command,
    errors as node_errors,
    ownership as node_ownership,
)

DATA = "/var/lib/mysql"
ANSWER_S = 60
STEP = "login"
HINT = "see `journalctl -u mariadb` on the node"


def is_installed():
    """Whether there is a client; the server comes with it."""
    return shutil.which("mariadb") is not None


def sql(statement, *options):
    """The result of SQL that is given on standard input."""
    argv = ["mariadb", *options, "--batch", "--skip-column-names"]
    return node_command.run_merged(argv, ANSWER_S, stdin=statement)


def require(statement, password=""):
    """SQL that must succeed; the password is in no message."""
    result = sql(statement)
    if not result.ok:
        words = result.message.replace(password, "***") if password else result.message
        raise node_errors.HintedError("MariaDB refused: %s" % words, HINT)


def login_works(user, password, database):
    """Whether the user's own login would reach its database."""
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write('[client]\nuser="%s"\npassword="%s"\n' % (user, password))
        # must be the first option; the file is 0600 and gone in a moment
        grants = sql("SHOW GRANTS;", "--defaults-extra-file=%s" % path)
        names = (database, database.replace("_", "\\_"))
        return grants.ok and any("ALL PRIVILEGES ON `%s`" % name in grants.output for name in names)
    finally:
        os.unlink(path)


def ensure_database(noted, database, user, password):
    """The database, and the user with all rights on it."""
    shown = sql("SHOW DATABASES LIKE '%s';" % database) if is_installed() else None
    if shown and shown.ok:
        present = bool(shown.output.strip())
        works = present and login_works(user, password, database)
    elif noted.dry:
        # MariaDB is installed or started before this task runs
        present, works = os.path.isdir(os.path.join(DATA, database)), True
    else:
        why = shown.message if shown else "not installed"
        raise node_errors.HintedError("MariaDB does not answer: %s" % why, HINT)
    if present and works:
        return
    if not noted.dry:
        quoted = password.replace("\\", "\\\\").replace("'", "\\'")
        require(
            "CREATE DATABASE IF NOT EXISTS `%(d)s`;"
            "CREATE USER IF NOT EXISTS '%(u)s'@'localhost';"
            "ALTER USER '%(u)s'@'localhost' IDENTIFIED BY '%(p)s';"
            "GRANT ALL PRIVILEGES ON `%(d)s`.* TO '%(u)s'@'localhost';" % {"d": database, "u": user, "p": quoted},
            password,
        )
    if not present:
        noted.did("database", database, "create")
    noted.did("login", user, "set", detail="of database %s" % database)


def ensure_login(noted, component, user, wanted):
    """A login by the socket, or none if an earlier call created it."""
    owned = node_ownership.load(component, STEP)
    query = "SELECT 1 FROM mysql.user WHERE user = '%s' AND host = 'localhost';" % user  # noqa: S608 (a plain name)
    shown = sql(query) if is_installed() else None
    if shown and shown.ok:
        present = bool(shown.output.strip())
    elif noted.dry:
        # MariaDB is installed or started before this task runs
        present = user in owned["logins"]
    elif shown:
        # it does not answer: the next deploy tries again
        return
    else:
        present = wanted
    if wanted != present and (wanted or user in owned["logins"]):
        if not noted.dry:
            name = "'%s'@'localhost'" % user
            require("CREATE USER %s IDENTIFIED VIA unix_socket;" % name if wanted else "DROP USER %s;" % name)
        noted.did("login", user, "set" if wanted else "remove", detail="of MariaDB, to see how it does")
    if not noted.dry and (noted.changes or not wanted):
        owned["logins"] = [user] if wanted else []
        node_ownership.save(component, STEP, owned)


def main():
    module = AnsibleModule(
        argument_spec={
            "user": {"required": True},
            "database": {"default": ""},
            "password": {"default": "", "no_log": True},
            "component": {"default": ""},
            "state": {"choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    params, noted = module.params, node_changes.Noted(module.check_mode)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", params["user"]):
        module.fail_json(msg="%r is no plain name of a user" % params["user"])
    if not re.fullmatch(r"[A-Za-z0-9_]*", params["database"]):
        module.fail_json(msg="%r is no plain name of a database" % params["database"])
    with node_errors.fail_on_error(module.fail_json):
        if params["database"]:
            ensure_database(noted, params["database"], params["user"], params["password"])
        else:
            ensure_login(noted, params["component"], params["user"], params["state"] == "present")
    module.exit_json(changed=bool(noted.changes), changes=noted.changes)


if __name__ == "__main__":
    main()
