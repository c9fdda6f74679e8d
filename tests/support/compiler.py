"""Stand-ins for libraries in C, compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import FAKES


def compiled(name: str, made: Path) -> str:
    """The path of the library that is made of tests/fakes/NAME.c; the test is skipped where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    argv = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(made), str(FAKES / f"{name}.c")]
    subprocess.run(argv, check=True)
    return str(made)
