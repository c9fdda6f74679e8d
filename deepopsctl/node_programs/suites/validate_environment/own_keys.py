"""Whether a user could log in to this node by key, as sshd itself is configured."""

from __future__ import annotations

import os
import pwd

from ..._shared import command

_DEFAULT = ".ssh/authorized_keys .ssh/authorized_keys2"
_KEY_TYPES = ("ssh-", "ecdsa-", "sk-")


def has_key(name: str) -> bool:
    """Whether sshd has a key of the user's to compare with, or asks a program for keys."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        return False
    settings = _sshd(name)
    if settings.get("authorizedkeyscommand", "none") != "none" or settings.get("trustedusercakeys", "none") != "none":
        return True
    places = settings.get("authorizedkeysfile", _DEFAULT).split()
    words = {"%u": name, "%h": account.pw_dir, "%U": str(account.pw_uid), "%%": "%"}
    return any(holds_key(os.path.join(account.pw_dir, _filled(place, words))) for place in places)


def _sshd(name: str) -> dict[str, str]:
    """sshd's settings for a connection of this user."""
    connection = f"user={name},host=localhost,addr=127.0.0.1"
    output = command.run(["sshd", "-T", "-C", connection], 15).output
    return {key: value for key, _, value in (line.partition(" ") for line in output.splitlines())}


def _filled(place: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        place = place.replace(word, value)
    return place


def holds_key(path: str) -> bool:
    """Whether a file of keys has one, with or without options before it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return any(_is_key(line) for line in stream)
    except OSError:
        return False


def _is_key(line: str) -> bool:
    """Whether one of its words, after options if there are any, is the type of a key."""
    return not line.lstrip().startswith("#") and any(word.startswith(_KEY_TYPES) for word in line.split())
