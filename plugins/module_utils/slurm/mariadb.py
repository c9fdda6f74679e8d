"""MariaDB on this machine, asked through its socket as root, which needs no password."""

from __future__ import annotations

import shutil

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command as node_command

CLIENT = ["mariadb", "--batch", "--skip-column-names"]


def is_installed():
    """Whether there is a client; the server comes with it."""
    return shutil.which(CLIENT[0]) is not None


def sql(statement, arguments=()):
    """(exit status, output) of SQL given on standard input, so that no password is ever on a command line."""
    result = node_command.run_merged(CLIENT[:1] + list(arguments) + CLIENT[1:], stdin=statement)
    return result.status, result.message
