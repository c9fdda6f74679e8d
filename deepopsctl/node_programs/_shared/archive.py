"""Programs as an archive that Python runs from memory: no file comes to the node, and nothing is left there."""

from __future__ import annotations

import base64
import sys

# An anonymous file in memory is gone with the process, however that ends; the processes that it starts find the
# programs by the same path.
_LOADER = """
import base64, os, sys
memory = os.memfd_create("deepopsctl")
with os.fdopen(os.dup(memory), "wb") as stream:
    stream.write(base64.b64decode({archive}))
sys.path.insert(0, "/proc/%d/fd/%d" % (os.getpid(), memory))
sys.argv = ["", *{arguments}]
from deepopsctl.node_programs.{module} import main
{call}
"""


def loader(module: str, archive: str, arguments: str, call: str) -> str:
    """A Python program that calls `main` of a module; `archive` (base64) and `arguments` are expressions in it."""
    return _LOADER.format(module=module, archive=archive, arguments=arguments, call=call)


def argv(module: str, *arguments: str) -> list[str]:
    """The command that reads an archive, the first line of its input (see `own`), and calls `main` of a module."""
    text = loader(module, "sys.stdin.buffer.readline()", "sys.argv[1:]", "main()")
    return ["/usr/bin/python3", "-I", "-c", text, *arguments]


def own() -> str:
    """The archive that this process runs from, as base64 text: to run its programs elsewhere."""
    with open(sys.path[0], "rb") as stream:
        return base64.b64encode(stream.read()).decode()
