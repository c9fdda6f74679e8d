"""Databases with their users, and users without rights, in the MariaDB of this node.

By MariaDB's socket as root, which needs no password. SQL goes in on standard input: no password is on a command line.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    errors as node_errors,
    step as node_step,
)

DATA = "/var/lib/mysql"
ANSWER_S, CONNECT_S = 60, 10
# before it was part of the step that it is for
# on from MariaDB 11.6: a conflict of two writes is an error then, which slurmdbd does not expect
ISOLATION = "innodb_snapshot_isolation"
HINT_ELSEWHERE = "is slurm_dbd_server right? The server has to listen there, and its firewall to let this host through"
HINT = "see `journalctl -u mariadb` on the node"


def is_installed() -> bool:
    """Whether there is a client; the server comes with it."""
    return shutil.which("mariadb") is not None


def sql(statement: str, *options: str) -> node_command.Result:
    """The result of SQL that is given on standard input."""
    argv = ["mariadb", *options, "--batch", "--skip-column-names"]
    # a login of root's own in ~/.my.cnf is read after the one that an option names, and would take its place
    env = node_command.environment(HOME="/nonexistent") if options else None
    return node_command.run_merged(argv, ANSWER_S, stdin=statement, env=env)


def require(statement: str, password: str = "") -> None:
    """SQL that must succeed; the password is in no message."""
    result = sql(statement)
    if not result.ok:
        words = result.message.replace(password, "***") if password else result.message
        raise node_errors.HintedError(f"MariaDB refused: {words}", HINT)


def check_names(users: Sequence[str], databases: Sequence[str] = ()) -> None:
    """Raises HintedError for a name that would end a statement."""
    for pattern, names, what in (
        ("[A-Za-z0-9_][A-Za-z0-9_-]*", users, "user"),
        ("[A-Za-z0-9_]+", databases, "database"),
    ):
        for name in names:
            if not re.fullmatch(pattern, name):
                raise node_errors.HintedError(f"{name!r} is not a plain name of a {what}")


def login_works(user: str, password: str, database: str) -> bool:
    """Whether the user's own login would reach its database."""
    with option_file(f'[client]\nuser="{user}"\npassword="{password}"\n') as option:
        grants = sql("SHOW GRANTS;", option)
    return grants.ok and has_all_rights(grants.output, database)


@contextlib.contextmanager
def option_file(text: str) -> Iterator[str]:
    """The option of a client that reads this; it must be the first. The file is 0600 and gone in a moment."""
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
        yield f"--defaults-extra-file={path}"
    finally:
        os.unlink(path)


def has_all_rights(grants: str, database: str) -> bool:
    """Whether `SHOW GRANTS` has all rights on a database, whose name there may be a pattern of SQL."""
    names = re.findall(r"^GRANT ALL PRIVILEGES ON (\S+)\.\* TO ", grants, re.MULTILINE)
    return any(name == "*" or re.fullmatch(expression_of(name.strip("`")), database) for name in names)


def expression_of(pattern: str) -> str:
    """The regular expression for a pattern of SQL; a client that is not a terminal doubles backslashes."""
    parts = re.findall(r"\\{1,2}.|.", pattern)
    return "".join({"%": ".*", "_": "."}.get(part, re.escape(part[-1])) for part in parts)


def verify_elsewhere(step: node_step.Step, wanted: Mapping[str, Any]) -> None:
    """That a server which others run lets the user do everything in its database, which is created where it is not."""
    database, where = wanted["name"], f"the database server {wanted['server']} port {wanted['server_port']}"
    check_login(wanted)
    address = own_address(wanted, where)
    if step.dry and not is_installed():
        # the client comes with the deploy, and the login is tried then
        return
    with option_file(wanted["login"]) as option:
        grants = sql("SHOW GRANTS;", option)
        if not grants.ok:
            message = f"{where} refuses {wanted['user']}: {grants.message}"
            raise node_errors.HintedError(message, grant_hint(wanted, seen_as(grants.message) or address))
        if not has_all_rights(grants.output, database):
            message = f"{where} does not give {wanted['user']} all rights on {database}"
            raise node_errors.HintedError(message, grant_hint(wanted, seen_as(grants.output) or address))
        if sql(f"SHOW GLOBAL VARIABLES LIKE '{ISOLATION}';", option).output.split() == [ISOLATION, "ON"]:
            step.module.warn(f"{where} has {ISOLATION}=ON, with which slurmdbd can stop: set it OFF there")
        if sql(f"SHOW DATABASES LIKE '{database}';", option).output.strip():
            return
        step.did(f"created the database {database}", "database", database, "create", detail=f"on {wanted['server']}")
        made = None if step.dry else sql(f"CREATE DATABASE IF NOT EXISTS `{database}`;", option)
    if made and not made.ok:
        raise node_errors.HintedError(f"{where} refuses: {made.message}", HINT_ELSEWHERE)


def check_login(wanted: Mapping[str, Any]) -> None:
    """Raises HintedError for what would end a statement, or a line of a configuration."""
    check_names([wanted["user"]], [wanted["name"]])
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9.:_-]*", wanted["server"]):
        raise node_errors.HintedError(f"{wanted['server']!r} is not a valid name or address of a database server")
    check_password(wanted, "[\\s#\"'\\\\]")


def check_password(wanted: Mapping[str, Any], refused: str) -> None:
    """Raises HintedError for one that slurmdbd would read differently, or that has what is `refused` here."""
    if not wanted["password"] or re.search(refused, wanted["password"]):
        raise node_errors.HintedError(
            f"slurmdbd.conf can't hold the password of the database user {wanted['user']}",
            "it must not be empty, nor have spaces, quotes, # or backslashes: give the user another one",
        )


def own_address(wanted: Mapping[str, Any], where: str) -> str:
    """The address of this node that the server sees."""
    try:
        with socket.create_connection((wanted["server"], wanted["server_port"]), CONNECT_S) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        message = f"{where} does not answer: {error.strerror or error}"
        raise node_errors.HintedError(message, HINT_ELSEWHERE) from error


def seen_as(text: str) -> str:
    """The host that the server knows this node as, from a refusal or from grants."""
    match = re.search("[`']@[`']([^`']+)", text)
    return match.group(1) if match else ""


def grant_hint(wanted: Mapping[str, Any], host: str) -> str:
    """What its administrators have to run."""
    database, user = wanted["name"], f"'{wanted['user']}'@'{host}'"
    return (
        f"on the database server: CREATE DATABASE IF NOT EXISTS `{database}`; "
        f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY 'PASSWORD'; "
        f"ALTER USER {user} IDENTIFIED BY 'PASSWORD'; "
        f"GRANT ALL PRIVILEGES ON `{database}`.* TO {user}; "
        "where PASSWORD is slurm_dbd_password of secrets.yml"
    )


def ensure_database(step: node_step.Step, wanted: Mapping[str, Any]) -> None:
    """The database, and its user with all rights on it."""
    database, user, password = wanted["name"], wanted["user"], wanted["password"]
    check_names([user], [database])
    # quotes within have served in this host's own server
    check_password(wanted, '[\\s#\\\\]|^"')
    shown = sql(f"SHOW DATABASES LIKE '{database}';") if is_installed() else None
    if shown and shown.ok:
        present = bool(shown.output.strip())
        works = present and login_works(user, password, database)
    elif step.dry:
        # MariaDB is installed or started before
        present, works = os.path.isdir(os.path.join(DATA, database)), True
    else:
        why = shown.message if shown else "not installed"
        raise node_errors.HintedError(f"MariaDB does not answer: {why}", HINT)
    if present and works:
        return
    if not step.dry:
        quoted = password.replace("'", "''")
        require(
            f"CREATE DATABASE IF NOT EXISTS `{database}`;"
            f"CREATE USER IF NOT EXISTS '{user}'@'localhost';"
            f"ALTER USER '{user}'@'localhost' IDENTIFIED BY '{quoted}';"
            f"GRANT ALL PRIVILEGES ON `{database}`.* TO '{user}'@'localhost';",
            quoted,
        )
    if not present:
        step.did(f"created the database {database}", "database", database, "create")
    step.did(f"set the login of {user}", "login", user, "set", detail=f"of database {database}")


def ensure_logins(step: node_step.Step) -> None:
    """Users who log in by the socket and have no rights; one that the step created and no longer wants is removed."""
    wanted, owned = step.wanted["database_logins"], step.owned["logins"]
    check_names(wanted)
    for user in [name for name in wanted if has_login(step, name) is False]:
        step.did(f"created the login {user}", "login", user, "set", detail="of MariaDB, without rights")
        if not step.dry:
            owned += [] if user in owned else [user]
            step.save_owned()
            require(f"CREATE USER '{user}'@'localhost' IDENTIFIED VIA unix_socket;")
    for user in [name for name in owned if name not in wanted]:
        present = has_login(step, user)
        if present:
            step.did(f"removed the login {user}", "login", user, "remove", detail="of MariaDB, without rights")
        if present and not step.dry:
            require(f"DROP USER '{user}'@'localhost';")
        # where it does not answer, the next deploy tries again
        if not step.dry and (present is not None or not is_installed()):
            owned.remove(user)
            step.save_owned()


def has_login(step: node_step.Step, user: str) -> bool | None:
    """Whether MariaDB has the user; None where it does not answer, or is not there."""
    query = f"SELECT 1 FROM mysql.user WHERE user = '{user}' AND host = 'localhost';"  # noqa: S608 (a plain name)
    shown = sql(query) if is_installed() else None
    if shown and shown.ok:
        return bool(shown.output.strip())
    # a check run is before MariaDB is installed or started
    return user in step.owned["logins"] if step.dry else None
