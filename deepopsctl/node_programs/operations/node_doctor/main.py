"""All facts of one node."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from ..._shared import access_keys, platform as node_platform, room, slurm_needs
from . import host, network, packages, restarts, services, storage


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The facts, with what the request says that they are to be compared with.

    `names` are all nodes, as NAME=ADDRESS words or a bare NAME; `ports` the TCP ports of a cluster's daemons, by
    daemon; `outside` the repositories that a deploy would add here: `what` they are for and their `url`. Those with
    one of the files `unless` are in use already, and not asked. `database` is the host and port of a database server
    that others run, where slurmdbd needs one. `needs` is what Slurm's settings need of the node. `settings` are handed
    back as they are. `requires` is what has to be so before anything is deployed there.
    """
    words = (word.partition("=") for word in str(request["names"]).split())
    ports = {daemon: int(port) for daemon, port in request["ports"].items()}
    names = {name: address for name, _equals, address in words}
    facts = report(names, list(ports.values()), request["outside"], request.get("database") or [])
    facts["refusals"] = node_platform.refusals(request.get("requires") or {})
    facts["unmet"] = slurm_needs.unmet(request.get("needs") or {}, facts["slurm"]["version"])
    return {"deepops": {"doctor": dict(facts, ports=ports, settings=request["settings"])}}


def login() -> dict[str, str]:
    """By whom the node is reached, its home where that is on a file server, and whether root's file has its keys."""
    user = os.environ.get("SUDO_USER") or "root"
    seen = os.geteuid() == 0 and user != "root"
    keys = ("root" if access_keys.in_force(user) else "home") if seen else ""
    return {"user": user, "networked": access_keys.networked_home(user) if seen else "", "keys": keys}


def report(
    expected: dict[str, str], ports: list[int], outside: list[dict[str, Any]], server: list[Any]
) -> dict[str, Any]:
    """Everything, with the node's clock at the beginning and at the end."""
    begin = time.time()
    running = services.processes()
    facts = dict(
        host.identity(),
        **host.size(),
        root=os.geteuid() == 0,
        python=platform.python_version(),
        platform=node_platform.os_release(),
        disks=room.disks(),
        gpus=host.gpus(),
        secure_boot=host.secure_boot(),
        addresses=network.addresses(),
        names=network.names(expected),
        packages=packages.state(),
        versions=packages.versions(),
        users=host.local_users(),
        storage=storage.rights(),
        login=login(),
        outside=network.unreachable(outside),
        listeners=services.listeners(ports, running),
        time=services.time_service(running),
        firewalls=services.firewalls(),
        slurm=services.slurm(running),
        restarts=restarts.restarts(),
        database=services.database(running, server),
        **node_platform.cgroup_facts(),
    )
    facts["clock"] = {"begin": begin, "end": time.time()}
    return facts
