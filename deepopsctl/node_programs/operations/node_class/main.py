"""What a plan asks every node itself: what it has in common with others, and what would stop a deploy there."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from ..._shared import packages_query, platform as node_platform, reach, room, slurm_client, slurm_needs
from . import likeness

RECORDS = "/var/lib/deepopsctl/records"


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The answer under `node_class`.

    With `name`, the node's own in cluster.yml: the hash of each area that its plan depends on, none where deepopsctl
    has deployed something; what its package sources and file systems lack. With `requires` and `needs`, as the gate of
    a deploy has them, and the `urls` of package sources that it would add: what of that is not so.
    """
    begin = time.time()
    answer = report(str(request["name"])) if "name" in request else verified(request)
    return {"deepops": {"node_class": answer, "clock": {"begin": begin, "end": time.time()}}}


def report(name: str) -> dict[str, Any]:
    """What it has in common with others, and what stops any deploy."""
    is_bare = os.path.isdir(packages_query.DATABASE) and not (os.path.isdir(RECORDS) and os.listdir(RECORDS))
    sources = packages_query.addresses()
    return {
        "areas": likeness.areas(name) if is_bare else {},
        "hostname": socket.gethostname(),
        "meminfo": likeness.memory(),
        "sources": len(sources),
        "unreachable": reach.unanswered(sources, packages_query.proxies()),
        "room": [text for disk in room.disks() for text in room.shortages(disk)],
    }


def verified(request: dict[str, Any]) -> dict[str, Any]:
    """What a deploy would refuse, what Slurm's settings need and is not here, and which sources do not answer."""
    needs = request.get("needs") or {}
    version = slurm_client.version() if needs.get("plugstack") else ""
    return {
        "refusals": [
            {"message": message, "hint": hint}
            for message, hint in node_platform.refusals(request.get("requires") or {}).values()
        ],
        "unmet": [{"message": each["message"], "hint": ""} for each in slurm_needs.unmet(needs, version)],
        "unreachable": reach.unanswered(request.get("urls") or [], packages_query.proxies()),
    }
