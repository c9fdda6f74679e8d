"""What benchmarks/budget.toml is compared with counts what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.budget import measured

# two processes of its own: a worker that starts one, and a shell that starts what is not seen
PROGRAM = """
import os, subprocess, sys
if os.fork() == 0:
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    os._exit(0)
os.wait()
subprocess.run(["sh", "-c", "sleep 0; sleep 0"], check=True)
sum(range(3_000_000))
"""


def test_each_process_that_python_starts_is_counted_and_its_cpu(tmp_path: Path) -> None:
    with measured(tmp_path) as here:
        subprocess.run([sys.executable, "-c", PROGRAM], check=True)

    # of this Python, which starts the program, nothing is counted
    assert here.processes == 3
    assert here.cpu_s > 0
