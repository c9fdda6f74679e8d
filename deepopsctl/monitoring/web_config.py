"""The web configuration file of Prometheus, Alertmanager and exporters: users and TLS.

It is reloaded for each request, so that a new password needs no restart.
"""

from __future__ import annotations

import base64
import hashlib

import bcrypt

from deepopsctl.monitoring.resources import File, MonitoredNode
from deepopsctl.text.header import MANAGED_HEADER

DIRECTORY = "/etc/prometheus"
# of root's, for those that run as `prometheus`
GROUP = "prometheus"
USER = "admin"
# hashing 2^10 times costs a daemon about 0.05 s, once: it remembers who was right
_ROUNDS = 10
_STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BCRYPTS = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def hashed(password: str, purpose: str) -> str:
    """bcrypt's hash, the same for the same password and purpose: a second deploy has to find nothing to change.

    The salt is derived from the password. That is safe: these passwords are random and long.
    """
    digest = hashlib.sha256(f"{purpose}\0{password}".encode()).digest()[:16]
    salt = base64.b64encode(digest).decode().rstrip("=").translate(str.maketrans(_STANDARD, _BCRYPTS))
    return bcrypt.hashpw(password.encode(), f"$2b${_ROUNDS}${salt}".encode()).decode()


def for_people(name: str, node: MonitoredNode) -> File:
    """The file of a daemon whose pages people open."""
    password = node.secrets["web_password"]
    return _file(f"{DIRECTORY}/deepops-{name}-web.yml", USER, hashed(password, name), check=name == "prometheus")


def password_file() -> str:
    """Where Prometheus reads what it shows to itself and to Alertmanager."""
    return f"{DIRECTORY}/deepops-password"


def secret(path: str, text: str) -> File:
    """A file that only the daemons' account can read."""
    return File(path, text, mode="0640", group=GROUP, secret=True)


def _file(path: str, user: str, password_hash: str, *, check: bool) -> File:
    text = f'{MANAGED_HEADER}basic_auth_users:\n  {user}: "{password_hash}"\n'
    validate = ("promtool", "check", "web-config", "%s") if check else ()
    return File(path, text, mode="0640", group=GROUP, validate=validate, secret=True)
