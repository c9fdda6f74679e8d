"""MariaDB on this machine, asked through its socket as root, which needs no password."""

from __future__ import annotations

import shutil
import subprocess

CLIENT = ["mariadb", "--batch", "--skip-column-names"]


def is_installed():
    """Whether there is a client; the server comes with it."""
    return shutil.which(CLIENT[0]) is not None


def sql(statement, arguments=()):
    """(exit status, output) of SQL given on standard input, so that no password is ever on a command line."""
    result = subprocess.run(
        CLIENT[:1] + list(arguments) + CLIENT[1:],
        input=statement,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    return result.returncode, result.stdout.strip()
