"""Links by which a user who is on the login node is logged in to the web pages, once."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

VALID_S = 300
# of one user at the same time: the oldest is worth nothing any more
OF_ONE, IN_ALL = 5, 5000


@dataclass(frozen=True)
class _Link:
    user: str
    until: float


class Links:
    """Those that were given out and not used; a restart forgets them. What is kept of one does not open anything."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._links: dict[str, _Link] = {}

    def give(self, user: str) -> str:
        """A new code for the user."""
        self._forget()
        of_user = [key for key, link in self._links.items() if link.user == user]
        for key in of_user[: max(len(of_user) - OF_ONE + 1, 0)] or list(self._links)[: len(self._links) - IN_ALL + 1]:
            del self._links[key]
        code = secrets.token_urlsafe(32)
        self._links[_key(code)] = _Link(user, self._now() + VALID_S)
        return code

    def owner(self, code: str) -> str:
        """Whose it is; '' where it was used, or is too old, or never was. It stays valid."""
        self._forget()
        link = self._links.get(_key(code))
        return link.user if link else ""

    def take(self, code: str) -> str:
        """Whose it is; it is worth nothing from now on."""
        user = self.owner(code)
        self._links.pop(_key(code), None)
        return user

    def _forget(self) -> None:
        now = self._now()
        self._links = {key: link for key, link in self._links.items() if link.until > now}


def _key(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
