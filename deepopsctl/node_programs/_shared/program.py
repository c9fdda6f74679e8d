"""A program that the Ansible module `node_program` has started: a request comes in, one result goes out.

Its `main` (of node_programs/WING/NAME/main.py) takes the module's `input`, and `check_mode`. What it returns are
the keys of the task's result. For a failure it raises; SystemExit with a text is one that needs no traceback. A call
that was asked for by `again` is repeated then, unless it returns `failed` and `final`.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any, Dict

RESULT_MARK = "DEEPOPSCTL-RESULT "
Request = Dict[str, Any]
Result = Dict[str, Any]


def main() -> None:
    """Run the program of the command line, as `suites.burn_in`."""
    request: Request = json.loads(sys.stdin.buffer.readline())
    # what the program prints is not a result; the connection stays where `hangup` watches it
    connection, sys.stdout = sys.stdout, sys.stderr
    result: Result = import_module(f"..{sys.argv[1]}.main", __package__).main(request)
    connection.write(RESULT_MARK + json.dumps(result) + "\n")
    connection.flush()
