"""What users meet when they log in to a login node: keys, and the message of the day."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ..._shared import command
from ..._shared.checks import FAIL, PASS, Check
from ..._shared.waiting import wait_until
from .checks import check

PASSWORDS, MESSAGE = "environment-login-keys", "environment-login-message"
MOTD = "/run/motd.d/deepopsctl"
# the timer writes it every two minutes
OLDEST_S = 600
# ... and first some seconds after the deploy
FIRST_S = 30
_REFUSED = ("passwordauthentication no", "kbdinteractiveauthentication no")


def verify_login_node(node: str, wanted: Mapping[str, Any]) -> list[Check]:
    """A check for each of the two that the site has."""
    checks = [_passwords(node)] if wanted["keys_only"] else []
    return checks + ([_message(node)] if wanted["message"] else [])


def _passwords(node: str) -> Check:
    lines = command.run(["sshd", "-T"], 15).output.splitlines()
    missing = [line for line in _REFUSED if line not in lines]
    text = f"sshd has not: {', '.join(missing)}; another file of /etc/ssh/sshd_config.d comes first"
    return check(PASSWORDS, node, FAIL if missing else PASS, "accepted" if missing else "refused", "refused",
                 message=text if missing else "")  # fmt: skip


def _message(node: str) -> Check:
    wait_until(lambda: os.path.exists(MOTD), FIRST_S, 0.2)
    try:
        age = time.time() - os.stat(MOTD).st_mtime
    except OSError as error:
        return check(MESSAGE, node, FAIL, "none", "recent", message=f"{MOTD}: {error.strerror}")
    return check(MESSAGE, node, PASS if age < OLDEST_S else FAIL, round(age), OLDEST_S, "s")
