"""HAProxy's table of notebooks: what a route has, and the words by which it is changed while HAProxy runs."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

TABLE = "/etc/deepopsctl/web/routes.map"
SOCKET = "/run/deepops-web-proxy/admin.sock"
# the cookie that a browser has to have for the notebooks of one user
COOKIE = "deepops-notebook"
_PATH = re.compile(r"/user/[A-Za-z0-9._~%@+-]{1,200}/")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
_ELSEWHERE = ("\\", "//", "/../", "%2e", "%2f")
_TEXT = re.compile(r"[A-Za-z0-9.-]{1,253}")


@dataclass(frozen=True)
class Route:
    """Where the notebook of one path is; `name` is in its certificate, `secret` is its owner's cookie."""

    path: str
    address: str
    port: int
    name: str
    secret: str

    def __post_init__(self) -> None:
        """HAProxy's words end at spaces and semicolons: nothing else may come in. Raises ValueError."""
        good = _PATH.fullmatch(self.path) and _ADDRESS.fullmatch(self.address) and 1023 < self.port < 65536
        if not good or not all(_TEXT.fullmatch(each) for each in (self.name, self.secret)):
            raise ValueError(f"not a route: {self.path!r} {self.address!r} {self.port!r}")

    @property
    def value(self) -> str:
        """As the table has it."""
        return f"{self.address}|{self.port}|{self.name}|{self.secret}"


def add(route: Route) -> str:
    """The command that adds it, or replaces what is there."""
    # a key can be in a table twice
    return f"{remove(route.path)}; add map {TABLE} {route.path} {route.value}"


def remove(path: str) -> str:
    """The command that removes what is there; HAProxy complains where nothing is."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"not the path of a notebook: {path!r}")
    return f"del map {TABLE} {path}"


SHOW = f"show map {TABLE}"


def read(answer: str) -> dict[str, Route]:
    """The routes of `show map`: a line each, of an address in memory, path and value."""
    routes = {}
    for line in answer.splitlines():
        words = line.split()
        if len(words) == 3 and words[2].count("|") == 3:
            address, port, name, secret = words[2].split("|")
            routes[words[1]] = Route(words[1], address, int(port), name, secret)
    return routes


def name_of(user: str) -> str:
    """The name in the certificate of a user's notebooks: of no one else's."""
    return f"n{hashlib.sha256(user.encode()).hexdigest()[:40]}.notebooks.internal"


def secret_of(user: str, key: bytes) -> str:
    """The value of the cookie that only this user's browsers get."""
    return hmac.new(key, b"notebook " + user.encode(), hashlib.sha256).hexdigest()


def is_own_path(path: str, prefix: str) -> bool:
    """Whether a page is one of the notebooks below the prefix: no address of another host, no way out of it."""
    return path.startswith(prefix) and not any(each in path.partition("?")[0].lower() for each in _ELSEWHERE)
