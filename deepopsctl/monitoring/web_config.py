"""The web configuration file of Prometheus, Alertmanager and exporters: users and TLS.

It is reloaded for each request, so that a new password needs no restart.
"""

from __future__ import annotations

import base64
import hashlib

import bcrypt

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
