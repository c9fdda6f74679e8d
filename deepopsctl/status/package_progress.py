"""What apt and dpkg of a node are doing, while a task takes long there: from what every account may read."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import AS_DECLARED, Login
from deepopsctl.errors import DeepOpsError
from deepopsctl.ssh.node_command import ask

# an answer that comes later is of no use
_TIMEOUT_S = 8
# packages that were fetched since (apt gives a file its server's time), and what dpkg wrote in the last 20 s
INSPECT = (
    "find /var/cache/apt/archives -maxdepth 1 -name '*.deb' -cmin -{minutes} 2>/dev/null | wc -l; "
    "find /var/log/dpkg.log -mmin -0.34 -exec tail -n 1 {{}} + 2>/dev/null"
)
# `2026-11-29 01:12:51 unpack libpmix2:amd64 <none> 4.2.2`
_DPKG = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (status )?([a-z-]+) ([a-z0-9][a-z0-9+.-]{0,80})(:[a-z0-9]+)? ")
_DOING = {
    "install": "unpacks", "upgrade": "unpacks", "unpack": "unpacks", "half-installed": "unpacks", "unpacked": "unpacks",
    "configure": "sets up", "half-configured": "sets up", "installed": "has set up", "trigproc": "works on triggers of",
    "triggers-pending": "works on triggers of", "triggers-awaited": "works on triggers of", "remove": "removes",
}  # fmt: skip

Inspect = Callable[[str, float], str]


def package_progress(directory: ClusterDir, login: Login = AS_DECLARED) -> Inspect:
    """What asks a node by its name, `seconds` after the task began; '' where it says nothing."""

    def inspect(name: str, seconds: float) -> str:
        remote = ["sh", "-c", INSPECT.format(minutes=int(seconds / 60) + 1)]
        with suppress(DeepOpsError, OSError):
            cluster = directory.cluster()
            for node in cluster.nodes:
                if node.name == name:
                    return shown(ask(directory, cluster, node, remote, timeout_s=_TIMEOUT_S, login=login).output)
        return ""

    return inspect


def shown(output: str) -> str:
    """`unpacks libpmix2`, or how many packages were fetched; the node chose this text."""
    fetched, _, last = output[:4000].partition("\n")
    if (line := _DPKG.match(last)) and line[2] in _DOING:
        return f"{_DOING[line[2]]} {line[3]}"
    return f"has fetched {fetched.strip()} packages" if re.fullmatch(r"\s*[1-9]\d{0,5}", fetched) else ""
