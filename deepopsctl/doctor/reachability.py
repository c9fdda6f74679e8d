"""Checks of nodes that could not be queried, from the failure of their only task."""

from __future__ import annotations

import re

from deepopsctl.checks.check import Check
from deepopsctl.doctor.check_builders import failed
from deepopsctl.run.hints import hint_for
from deepopsctl.run.outcome import Failure

# first match wins; a hint of its own where hints.py has none that is narrow enough
_REASONS = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .*has changed", "its host key has changed", ""),
    (r"Host key verification failed|No \S+ host key is known", "its host key is not known here", ""),
    (r"Permission denied|Too many authentication failures", "login refused: no key or password is accepted", ""),
    (r"Connection refused", "connection refused", ""),
    (r"No route to host|Network is unreachable|Host is unreachable", "no route to the node", ""),
    (r"Could not resolve hostname|Name or service not known", "its name does not resolve on this machine", ""),
    (
        r"banner exchange|Timeout, server .*not responding|Broken pipe|closed by|reset by",
        "it accepts the connection and then does not answer",
        "the node hangs or is overloaded: see its console",
    ),
    (r"timed? ?out", "no answer", ""),
)
_PYTHON = re.compile(
    r"module interpreter .* was not found|python3?: (command )?not found|minimum of Python|Python \S+ or newer|"
    r"No such file or directory.*python|SyntaxError: future feature annotations",
    re.IGNORECASE,
)
_HUNG = re.compile(r"timed out after|Timed out|task .* timeout", re.IGNORECASE)


def check_failure(failure: Failure) -> Check:
    """The check that failed."""
    text = " ".join(failure.message.split())
    if failure.unreachable:
        return _unreachable(failure, text)
    if _PYTHON.search(text):
        return failed("python", failure.host, text, "none that will do", hint=failure.hint)
    if _HUNG.search(text):
        hint = "log in and find what hangs (`uptime`, `dmesg`, a dead network file system)"
        return failed("examined", failure.host, "the login works, then it does not answer", hint=hint)
    return failed("examined", failure.host, text, hint=failure.hint)


def _unreachable(failure: Failure, text: str) -> Check:
    for pattern, sentence, hint in _REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return failed("reachable", failure.host, sentence, hint=hint or hint_for(text))
    return failed("reachable", failure.host, text, hint=failure.hint)
