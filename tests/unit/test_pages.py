"""Pages that stay right by themselves: pictures, tables and lists are compared with what they are made from."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.parametrize("name", ["benchmark-plots"])
def test_what_scripts_make_for_the_pages_is_current(name: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / name, "--check"], capture_output=True, text=True)

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
