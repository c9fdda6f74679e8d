"""Units as systemd reads them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest


def command(dropin: str) -> list[str]:
    """What systemd makes of the unit's ExecStart: no word of these has a space."""
    line = dropin.partition("\nExecStart=\nExecStart=")[2].replace(" \\\n", " ").partition("\n")[0]
    return [word.strip('"').replace("\\\\", "\\").replace("%%", "%").replace("$$", "$") for word in line.split()]


def verify(directory: Path, units: Mapping[str, str]) -> None:
    """Have systemd judge these units, written into a directory; it must find nothing wrong with them."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed here")
    for name, text in units.items():
        (directory / name).write_text(text, encoding="utf-8")
    argv = ["systemd-analyze", "verify", "--man=no", *(str(directory / name) for name in units)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    assert str(directory) not in done.stdout
    assert done.returncode == 0, done.stdout
