"""Stands before Open OnDemand's nginx_stage, which starts a user's server as root: only for whom PAM lets in.

The portal trusts the name that a provider says; this asks whether it is an account of a user's, and open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from ..._shared import settings
from . import agent, pam
from .offer import RefusedError

CONFIG = "/etc/deepopsctl/ondemand/stage.json"
STAGE = "/opt/ood/nginx_stage/sbin/nginx_stage"
SERVICE = "deepops-ondemand"
# those that the portal calls; each is about one user
_COMMANDS = frozenset({"pun", "app", "nginx"})
_USER = ("-u", "--user")


def main(
    arguments: Sequence[str] | None = None,
    config: str = CONFIG,
    start: Callable[[str, list[str]], object] = os.execv,
    opens: Callable[..., bool] = pam.opens,
) -> int:
    """Become nginx_stage, or say why not: the portal shows what is printed. Returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _verify(words, settings.load(config), opens)
    except (RefusedError, settings.SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    start(STAGE, [STAGE, *words])
    return 0


def _verify(words: Sequence[str], site: dict[str, Any], opens: Callable[..., bool]) -> None:
    account = agent.account_of(user_of(words), site["least_uid"])
    if account.pw_name in site["refused"]:
        raise RefusedError("this account does not use these pages")
    if words[0] == "pun" and not opens(account.pw_name, None, "", SERVICE):
        raise RefusedError("your account is closed: ask your administrators")


def user_of(words: Sequence[str]) -> str:
    """The one user that a call of nginx_stage is about. Raises RefusedError."""
    if not words or words[0] not in _COMMANDS:
        raise RefusedError("the portal does not call nginx_stage so")
    names = [after for word, after in zip(words, words[1:]) if word in _USER]
    # also what its parser would take for the option: -uroot, --us root, --user=root
    if len(names) != 1 or any(word.startswith(("-u", "--u")) and word not in _USER for word in words):
        raise RefusedError("the portal does not call nginx_stage so")
    return unquote(names[0])
