"""Fills a database from a dump, which is data: it may name tables of that database and their rows, and nothing else.

The client runs none of its own commands (`\\!` starts a shell), and logs in as a user who may do nothing elsewhere.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import subprocess
import tempfile
from collections.abc import Iterator

from ..._shared import database as database_clients
from . import BackupError
from .collect import sql

# how lines of mariadb-dump begin that has no routines, triggers and views; a line end in a value is written as `\\n`
_LINE = re.compile(
    rb"(?:--|/\*M?!|DROP TABLE IF EXISTS `|CREATE TABLE `|LOCK TABLES `|UNLOCK TABLES;|INSERT INTO `|\(|  [`A-Z]"
    rb"|\) ENGINE=|(?i:commit;|SET (?!GLOBAL|PASSWORD|ROLE|DEFAULT|STATEMENT)[@A-Z_]+ ?=)|$)"
)
_SHOWN = 60
_WRITER = "deepops_restore"
_RIGHTS = "SELECT, INSERT, CREATE, DROP, ALTER, INDEX, LOCK TABLES"


def import_dump(path: str, database: str) -> None:
    """Fill a database from a dump; nothing is run of one that has anything else than tables."""
    _require_tables_alone(path)
    # --binary-mode: no command of the client's is known; --sandbox: releases that have it refuse them, too
    words = ["--binary-mode", "--loose-sandbox", "--loose-local-infile=0", database]
    with _as_writer(database) as client, open(path, "rb") as stream:
        ended = subprocess.run(
            [*client, *words], stdin=stream, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
    if ended.returncode:
        reason = ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["failed"]
        raise BackupError("mariadb takes the dump no further: " + reason[-1][-300:])


def _require_tables_alone(path: str) -> None:
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if not _LINE.match(line):
                shown = ascii(line[:_SHOWN].decode("utf-8", "replace").strip())
                raise BackupError(
                    f"line {number} of the dump is none of a table's, so nothing of it is restored: {shown}"
                )


@contextlib.contextmanager
def _as_writer(database: str) -> Iterator[list[str]]:
    """The client's command line as a user for this database alone; where others run the server, Slurm's own is one."""
    if database_clients.is_elsewhere():
        yield database_clients.client("mariadb")
        return
    password, user = secrets.token_hex(16), f"'{_WRITER}'@'localhost'"
    sql(f"CREATE OR REPLACE USER {user} IDENTIFIED BY '{password}'; GRANT {_RIGHTS} ON `{database}`.* TO {user};")
    try:
        with tempfile.NamedTemporaryFile("w", encoding="ascii", prefix="deepops-login-") as login:
            login.write(f"[client]\nuser={_WRITER}\npassword={password}\n")
            login.flush()
            yield ["env", "HOME=/nonexistent", "mariadb", "--defaults-extra-file=" + login.name]
    finally:
        sql(f"DROP USER IF EXISTS {user};")
