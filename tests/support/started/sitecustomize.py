"""For a command that a test measures: one byte in a file for each process that Python starts, in it and below.

Python imports this at its start from a directory in PYTHONPATH (tests/support/budget.py). What ssh starts is not seen.
"""

from __future__ import annotations

import os
import sys

_STARTS = ("os.fork", "os.forkpty", "subprocess.Popen")
_FILE = os.open(os.environ["DEEPOPSCTL_TEST_STARTED"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        os.write(_FILE, b".")


sys.addaudithook(_note)
