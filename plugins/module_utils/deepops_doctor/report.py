"""All facts of one node."""

from __future__ import annotations

import os
import platform
import time
from typing import Any, Dict, List

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import platform as node_platform

from . import host, network, packages, repositories, services


def report(expected: Dict[str, str], ports: List[int], outside: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Everything, with the node's clock at the beginning and at the end."""
    begin = time.time()
    running = services.processes()
    facts = dict(
        host.identity(),
        **host.size(),
        root=os.geteuid() == 0,
        python=platform.python_version(),
        platform=node_platform.os_release(),
        disks=host.disks(["/", "/var", "/tmp"]),
        gpus=host.gpus(),
        secure_boot=host.secure_boot(),
        addresses=network.addresses(),
        names=network.names(expected),
        packages=packages.state(),
        versions=packages.versions(),
        users=host.local_users(),
        outside=repositories.unreachable(outside),
        listeners=services.listeners(ports, running),
        time=services.time_service(running),
        firewalls=services.firewalls(),
        slurm=services.slurm(running),
        database=services.database(running),
        **node_platform.cgroup_facts(),
    )
    facts["clock"] = {"begin": begin, "end": time.time()}
    return facts
