"""A real file system of btrfs in an image, for tests of quotas and snapshots."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path) -> Iterator[Path]:
    """One of 300 MiB below the directory, which users can enter. Skips a test where it can't be had."""
    image, path = directory / "image", directory / "homes"
    path.mkdir()
    if os.geteuid() != 0 or not shutil.which("mkfs.btrfs"):
        pytest.skip("needs root and btrfs-progs")
    with image.open("wb") as stream:
        stream.truncate(300 << 20)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, path], capture_output=True).returncode:
        pytest.skip("this machine mounts no btrfs")
    try:
        # pytest's own directories are root's alone
        for each in (path, *path.parents):
            if each != Path("/"):
                each.chmod(each.stat().st_mode | 0o055)
        yield path
    finally:
        subprocess.run(["umount", path], check=True)
