"""Which of a machine's mounts are there, by the kernel's own table."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from deepopsctl.monitoring.collectors import COLLECTORS
from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.node_programs._shared.mount_table import parse
from deepopsctl.node_programs.services.node_metrics.mounts import COLLECTOR, samples

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /home rw,relatime shared:9 - nfs4 nas:/home rw
41 22 0:41 / /data\\040new rw shared:10 - ext4 /dev/sdb1 rw
42 22 0:42 / /scratch rw shared:11 - autofs systemd-1 rw
43 22 0:43 / /proj rw shared:12 - autofs systemd-1 rw
44 43 0:44 / /proj rw shared:13 - nfs4 nas:/proj rw
"""
MOUNT = {
    "server": "", "options": [], "user_writable": "", "type": "nfs", "nodes": "gpu01", "required": False,
    "automount": False, "automount_idle": "",
}  # fmt: skip


def wanted(path: str, *, required: bool = False, automount: bool = False) -> dict[str, object]:
    return {"name": "x", "path": path, "required": required, "automount": automount}


@pytest.mark.parametrize(
    ("path", "automount", "there"),
    [
        ("/home", False, 1),
        ("/data new", False, 1),
        ("/gone", False, 0),
        # what is mounted at first use waits there; where it should be mounted for good, waiting is not enough
        ("/scratch", True, 1),
        ("/scratch", False, 0),
        ("/proj", True, 1),
        ("/proj", False, 1),
        # a directory in a file system is not a mount
        ("/home/alice", False, 0),
    ],
)
def test_a_mount_is_there_or_not(path: str, automount: bool, there: float) -> None:
    result = samples([wanted(path, automount=automount), wanted(path, required=True)], parse(TABLE))

    assert result[0].value == there
    assert [each.labels["required"] for each in result] == ["false", "true"]


def test_a_node_gets_what_it_mounts_itself() -> None:
    mounts = [
        {**MOUNT, "name": "home", "source": "nas:/home", "path": "/home", "required": True},
        {**MOUNT, "name": "data", "source": "nas:/data", "path": "/data", "nodes": "gpu02"},
        # served from the very directory where it is expected: mounted on itself, without setuid programs
        {**MOUNT, "name": "own", "source": "gpu01:/srv/own", "path": "/srv/own", "server": "gpu01"},
    ]
    machine = MonitoredNode("gpu01", "hpc", frozenset({"slurm_compute"}), "192.0.2.11", mounts=mounts)

    assert COLLECTORS["mounts"](machine) == {
        "mounts": [
            {"name": "home", "path": "/home", "required": True, "automount": False},
            {"name": "own-served", "path": "/srv/own", "required": False, "automount": False},
        ]
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_sees_a_real_mount_come_and_go(tmp_path: Path) -> None:
    # the kernel escapes a blank, and writes a carriage return as it is
    place = tmp_path / "a new\rplace"
    place.mkdir()
    collect = COLLECTOR.make({"mounts": [wanted(str(place))]})
    before = [each.value for each in collect()]
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)
    try:
        during = [each.value for each in collect()]
    finally:
        subprocess.run(["umount", str(place)], check=True)

    assert (before, during, [each.value for each in collect()]) == ([0], [1], [0])
