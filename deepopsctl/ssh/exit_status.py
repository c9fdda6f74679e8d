"""Meaning of an ssh process's exit code and error output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

_METHODS = re.compile(r"Permission denied \(([^)]*)\)")
_HOST_KEY = re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed|host key is known for")
_UNREACHABLE = re.compile(
    r"connection timed out|connection refused|no route to host|network is unreachable|could not resolve|"
    r"name or service not known|temporary failure in name resolution|connection reset|connection closed|"
    r"closed by remote host|banner exchange|operation timed out|not allowed at this time|broken pipe|"
    r"timeout, server",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(debug\d|Warning: Permanently added|\*\* |@@@|# )")
_PENALTY = re.compile(r"not allowed at this time|(closed by remote host|reset by peer)\s*$", re.IGNORECASE)


class Failure(Enum):
    """Why a login failed, or that the command failed after it."""

    NONE = auto()
    DENIED = auto()
    HOST_KEY = auto()
    UNREACHABLE = auto()
    COMMAND = auto()


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one ssh process. `methods` are the methods that the node offered when it denied the login."""

    failure: Failure
    output: str = ""
    reason: str = ""
    methods: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        """Whether the login worked and the command ended well."""
        return self.failure is Failure.NONE


def read_answer(code: int, output: str, errors: str) -> Answer:
    """Classify a finished ssh process; 255 is ssh's own failure, anything else the remote command's."""
    if code == 0:
        return Answer(Failure.NONE, output)
    reason = last_words(errors)
    if code != 255:
        return Answer(Failure.COMMAND, output, reason or f"the command on the node ended with {code}")
    if _HOST_KEY.search(errors):
        return Answer(Failure.HOST_KEY, output, reason)
    denied = _METHODS.search(errors)
    if denied:
        return Answer(Failure.DENIED, output, reason, frozenset(denied[1].split(",")))
    if "Too many authentication failures" in errors:
        return Answer(Failure.DENIED, output, "too many keys were offered", frozenset())
    if _PENALTY.search(errors):
        # after failed logins, OpenSSH 9.8 and later shuts an address out (PerSourcePenalties)
        reason = "sshd drops this machine's connections: after failed logins it does so for a minute or more"
    if _UNREACHABLE.search(errors):
        return Answer(Failure.UNREACHABLE, output, reason)
    return Answer(Failure.COMMAND, output, reason or "ssh failed without a reason")


def last_words(errors: str) -> str:
    """The last meaningful line of stderr, without ssh's own prefixes."""
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not _NOISE.match(line.strip())]
    if not lines:
        return ""
    line = re.sub(r"^(ssh: |kex_exchange_identification: )", "", lines[-1])
    # "connect to host 10.0.0.1 port 22: ...": the node is named anyway, and equal texts fold into one row
    line = re.sub(r"^connect to host \S+ port \d+: ", "", line)
    line = re.sub(r"^Connection (closed|reset) by \S+ port \d+$", r"connection \1 by the node", line)
    return line[:1].lower() + line[1:300] if line[:2] != line[:2].upper() else line[:300]
