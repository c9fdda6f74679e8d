"""A program whose connection is cut cleans up and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import hangup

PROGRAM = """
import pathlib, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import hangup
left = threading.Event()
hangup.watch(lambda: (left.set(), pathlib.Path(sys.argv[1], "left").touch()))
print("ready", flush=True)
with ThreadPoolExecutor() as pool:
    list(pool.map(threading.Event.wait, [left if sys.argv[2] == "obeys" else threading.Event()]))
threading.Event().wait()
"""


@pytest.mark.parametrize("work", ["obeys", "hangs"])
def test_when_nobody_reads_any_more_the_program_cleans_up_and_ends(work: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path), work]
    environment = {**os.environ, "PYTHONPATH": str(Path(hangup.__file__).parent)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        assert process.poll() is None
        process.stdout.close()

        assert process.wait(60) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["left"]
