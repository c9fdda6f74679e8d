"""Programs that read what a set has run as another user: a set is data, and they may have errors."""

from __future__ import annotations

import pwd


def words_of(user: str) -> list[str]:
    """What runs a program as a user who can't become another."""
    account = pwd.getpwnam(user)
    return [
        "setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups",
        "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all",
    ]  # fmt: skip
