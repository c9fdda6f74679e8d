"""How programs reach the accounting database: root in this host's MariaDB, or Slurm's user on a server of others."""

from __future__ import annotations

import os

# the role slurm_database writes it for root, where the server is another host
LOGIN = "/etc/deepopsctl/database.cnf"


def client(program: str, *options: str) -> list[str]:
    """The command line of a client; the login is in a file, and on no command line."""
    if not is_elsewhere():
        return [program, *options]
    # ~/.my.cnf is read after LOGIN: its host, user and password would take the place of those there
    return ["env", "HOME=/nonexistent", program, "--defaults-extra-file=" + LOGIN, *options]


def is_elsewhere() -> bool:
    """Whether others run the server."""
    return os.path.exists(LOGIN)
