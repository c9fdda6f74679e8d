"""Free space on a node's file systems, and how much a deploy needs at least."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

# MiB: below the first a deploy fails, below the second is a warning
BOUNDS = {"/": (500, 2000), "/var": (500, 2000), "/tmp": (50, 200)}  # noqa: S108 (only checked)
LEAST_INODES = 0.02


def disks(paths: Sequence[str] = tuple(BOUNDS)) -> list[dict[str, Any]]:
    """Free space on the file systems of some directories, in MiB, without what is reserved for root."""
    file_systems = []
    for path in paths:
        try:
            status = os.statvfs(path)
        except OSError:
            continue
        file_systems.append(
            {
                "path": path,
                "free_mb": status.f_bavail * status.f_frsize // 2**20,
                "inodes": status.f_files,
                "free_inodes": status.f_favail,
                "read_only": bool(status.f_flag & os.ST_RDONLY),
            }
        )
    return file_systems


def shortages(disk: Mapping[str, Any]) -> list[str]:
    """Why a deploy would fail on a file system, a sentence each."""
    path, free, least = disk["path"], disk["free_mb"], BOUNDS[disk["path"]][0]
    problems = [f"{path} is read-only"] if disk["read_only"] else []
    problems += [f"{path} has {free} MiB left, {least} are needed"] if free < least else []
    if disk["inodes"] and disk["free_inodes"] < disk["inodes"] * LEAST_INODES:
        problems.append(f"{path} has {disk['free_inodes']} inodes left")
    return problems
