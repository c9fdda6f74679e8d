"""Databases with their users, and users without rights, in the MariaDB of this node.

By MariaDB's socket as root, which needs no password. SQL goes in on standard input: no password is on a command line.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
    ownership as node_ownership,
)

DATA = "/var/lib/mysql"
ANSWER_S = 60
# before it was part of the step that it is for
FORMER_STEP = "login"
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


def check_names(users, databases=()):
    """Raises HintedError for a name that would end a statement."""
    for pattern, names, what in (
        ("[A-Za-z0-9_][A-Za-z0-9_-]*", users, "user"),
        ("[A-Za-z0-9_]+", databases, "database"),
    ):
        for name in names:
            if not re.fullmatch(pattern, name):
                raise node_errors.HintedError("%r is no plain name of a %s" % (name, what))


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


def ensure_database(step, wanted):
    """The database, and its user with all rights on it."""
    database, user, password = wanted["name"], wanted["user"], wanted["password"]
    check_names([user], [database])
    shown = sql("SHOW DATABASES LIKE '%s';" % database) if is_installed() else None
    if shown and shown.ok:
        present = bool(shown.output.strip())
        works = present and login_works(user, password, database)
    elif step.dry:
        # MariaDB is installed or started before
        present, works = os.path.isdir(os.path.join(DATA, database)), True
    else:
        why = shown.message if shown else "not installed"
        raise node_errors.HintedError("MariaDB does not answer: %s" % why, HINT)
    if present and works:
        return
    if not step.dry:
        quoted = password.replace("\\", "\\\\").replace("'", "\\'")
        require(
            "CREATE DATABASE IF NOT EXISTS `%(d)s`;"
            "CREATE USER IF NOT EXISTS '%(u)s'@'localhost';"
            "ALTER USER '%(u)s'@'localhost' IDENTIFIED BY '%(p)s';"
            "GRANT ALL PRIVILEGES ON `%(d)s`.* TO '%(u)s'@'localhost';" % {"d": database, "u": user, "p": quoted},
            password,
        )
    if not present:
        step.did("created the database %s" % database, "database", database, "create")
    step.did("set the login of %s" % user, "login", user, "set", detail="of database %s" % database)


def ensure_logins(step):
    """Users who log in by the socket and have no rights; one that the step created and no longer wants is removed."""
    take_over(step)
    wanted, owned = step.wanted["database_logins"], step.owned["logins"]
    check_names(wanted)
    for user in [name for name in wanted if has_login(step, name) is False]:
        step.did("created the login %s" % user, "login", user, "set", detail="of MariaDB, without rights")
        if not step.dry:
            owned += [] if user in owned else [user]
            step.save_owned()
            require("CREATE USER '%s'@'localhost' IDENTIFIED VIA unix_socket;" % user)
    for user in [name for name in owned if name not in wanted]:
        present = has_login(step, user)
        if present:
            step.did("removed the login %s" % user, "login", user, "remove", detail="of MariaDB, without rights")
        if present and not step.dry:
            require("DROP USER '%s'@'localhost';" % user)
        # where it does not answer, the next deploy tries again
        if not step.dry and (present is not None or not is_installed()):
            owned.remove(user)
            step.save_owned()


def has_login(step, user):
    """Whether MariaDB has the user; None where it does not answer, or is not there."""
    query = "SELECT 1 FROM mysql.user WHERE user = '%s' AND host = 'localhost';" % user  # noqa: S608 (a plain name)
    shown = sql(query) if is_installed() else None
    if shown and shown.ok:
        return bool(shown.output.strip())
    # a check run is before MariaDB is installed or started
    return user in step.owned["logins"] if step.dry else None


def take_over(step):
    """What the former step of its own created is this step's."""
    component = step.wanted["component"]
    former = node_ownership.load(component, FORMER_STEP)
    if former["logins"]:
        step.owned["logins"] += [name for name in former["logins"] if name not in step.owned["logins"]]
        step.save_owned()
        if not step.dry:
            node_ownership.save(component, FORMER_STEP, {**former, "logins": []})
