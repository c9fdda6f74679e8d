"""Whether a job gets out by the proxy, and only where it may: CONNECT as `nobody`, whose name a refusal has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared import command
from ..._shared.checks import FAIL, PASS, Check
from .checks import check

ALLOWED, REFUSED = "environment-proxy-allowed", "environment-proxy-refused"
# a name that is in no list and nowhere else (RFC 6761)
STRANGER = "deepopsctl.invalid"
LIMIT_S = 60
USER = "nobody"
# the module is what users load; nothing of the user who connected is in the environment
_LOAD = 'module load httpproxy && exec /usr/bin/python3 -c "$0" "$1"'
_TALK = """\
import json, os, socket, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["https_proxy"])
with socket.create_connection((proxy.hostname, proxy.port), 40) as connection:
    lines = ["CONNECT {0}:443 HTTP/1.1", "Host: {0}:443", "Connection: close", "", ""]
    connection.sendall("\\r\\n".join(lines).format(sys.argv[1]).encode())
    data = b""
    while len(data) < 65536:
        piece = connection.recv(65536)
        data += piece
        # a tunnel stays open after its first line
        if not piece or data.split(b" ")[1:2] == [b"200"]:
            break
print(json.dumps([int(data.split(b" ")[1]), data.decode(errors="replace")]))
"""


class Answer(NamedTuple):
    """What the proxy answered: an HTTP status (0 for none), and the text or why there is none."""

    status: int
    text: str


def verify_proxy(node: str, proxy: Mapping[str, Any]) -> list[Check]:
    """One check for a host that is allowed, one for one that is not."""
    start = ("runuser", "-u", USER, "--", "env", "-i", "HOME=/nonexistent", "PATH=/usr/bin:/bin")
    return [allowed(node, proxy["host"], ask(start, proxy["host"])), refused(node, ask(start, STRANGER))]


def ask(start: Sequence[str], host: str) -> Answer:
    """The proxy's answer to a user who wants to reach a host by https."""
    answer = command.run([*start, "bash", "-lc", _LOAD, _TALK, host], LIMIT_S)
    try:
        status, text = json.loads(answer.output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return Answer(0, answer.failure)
    return Answer(int(status), str(text))


def allowed(node: str, host: str, answer: Answer) -> Check:
    """The host is reached."""
    if answer.status == 200:
        return check(ALLOWED, node, PASS, "reached", "reached")
    texts = {0: "no answer of the proxy: " + answer.text[-200:], 403: "the proxy refuses it"}
    text = texts.get(answer.status, f"the proxy itself does not reach it (HTTP {answer.status})")
    return check(ALLOWED, node, FAIL, "not reached", "reached", message=f"{host}: {text}")


def refused(node: str, answer: Answer) -> Check:
    """The host is refused, in words, with the name of the user whose connection it is."""
    expected = f"refused, user {USER}"
    if answer.status != 403:
        text = f"the proxy answered {answer.status} for {STRANGER}: {answer.text[-200:]}"
        return check(REFUSED, node, FAIL, "not refused", expected, message=text)
    if f"User: {USER}." not in answer.text:
        text = "the proxy does not know whose connection it is: is deepops-ident.service running, and its port open?"
        return check(REFUSED, node, FAIL, "refused, no user", expected, message=text)
    return check(REFUSED, node, PASS, expected, expected)
