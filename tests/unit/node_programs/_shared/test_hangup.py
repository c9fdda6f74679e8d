"""A program whose connection is cut cleans up and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from deepopsctl.node_programs._shared import hangup
from tests.support.paths import ROOT

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
    with subprocess.Popen(argv, stdout=PIPE, stdin=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        assert process.poll() is None
        process.stdout.close()

        assert process.wait(60) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["left"]


STARTED = """
import pathlib, sys, threading, types
from deepopsctl.node_programs._shared import hangup, program
def main(request):
    hangup.watch(lambda: pathlib.Path(request["left"]).touch())
    print("ready", flush=True)
    threading.Event().wait()
sys.modules["deepopsctl.node_programs.waits.main"] = types.SimpleNamespace(main=main)
sys.modules["deepopsctl.node_programs.waits"] = types.SimpleNamespace(main=main, __path__=[])
sys.argv = ["", "waits"]
program.main()
"""


def test_a_program_that_node_program_started_sees_that_its_output_is_closed(tmp_path: Path) -> None:
    # sshd keeps the other pipe open
    argv, environment = [sys.executable, "-c", STARTED], {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b'{"left": "' + str(tmp_path / "left").encode() + b'"}\n')
        process.stdin.flush()
        assert process.stderr.readline() == b"ready\n"
        process.stdout.close()

        assert process.wait(60) == 1
    assert (tmp_path / "left").exists()
