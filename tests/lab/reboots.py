"""Containers that reboot as hosts do.

They share the boot time and the boot id of their host, so slurmd reports each of its starts as a boot (`slurmd -b`),
and a node gets its own boot id at each start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.lab.harness import LabCluster, powered
from tests.lab.nvidia_stubs import write

# on a file system in memory: away after a reboot
MARK = "/run/before-the-reboot"
MACHINE = """#!/bin/sh
cat /proc/sys/kernel/random/uuid > /run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
"""
UNIT = """[Unit]
Before=ssh.service slurmd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/machine
[Install]
WantedBy=multi-user.target
"""


@contextmanager
def rebootable(cluster: LabCluster, nodes: Sequence[str]) -> Iterator[None]:
    """Nodes that can reboot; a deploy afterwards has slurmd as it was."""
    with ExitStack() as stack:
        for node in nodes:
            write(cluster, node, "/usr/local/sbin/machine", MACHINE, "0755")
            write(cluster, node, "/etc/systemd/system/machine.service", UNIT)
            cluster.root(node, "systemctl enable --now --quiet machine")
            cluster.root(node, """sed -i 's/^SLURMD_OPTIONS="/&-b /' /etc/default/slurmd""")
            stack.enter_context(powered(f"{cluster.name}-{node}"))
        yield
        for node in nodes:
            cluster.root(node, "systemctl disable --quiet machine")


def mark(cluster: LabCluster, nodes: Sequence[str]) -> None:
    """From now on it is seen whether they reboot."""
    for node in nodes:
        cluster.root(node, f"touch {MARK}")


def rebooted(cluster: LabCluster, nodes: Sequence[str]) -> list[str]:
    """The nodes that rebooted since they were marked."""
    return [node for node in nodes if not cluster.holds(node, f"test -e {MARK}")]
