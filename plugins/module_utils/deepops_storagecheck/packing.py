"""The agent as one line of a job's input: nothing is copied to a node, and nothing is left there."""

from __future__ import annotations

import base64
import inspect
import io
import zipfile
from typing import List

from . import agent, agent_operations, children, rates

_PACKAGE = "storageagent"
# What `python3 -c` runs: the packed agent is read from an anonymous file in memory, which is gone with the process.
# Read byte by byte: what follows the first line is the agent's own input.
_LOADER = """
import base64, os, sys
line = bytearray()
while not line.endswith(b"\\n"):
    byte = os.read(0, 1)
    if not byte:
        sys.exit("no agent came")
    line += byte
memory = os.memfd_create("storageagent")
with os.fdopen(os.dup(memory), "wb") as stream:
    stream.write(base64.b64decode(line))
sys.path.insert(0, "/proc/%d/fd/%d" % (os.getpid(), memory))
from storageagent.agent import main
main(*sys.argv[1:])
"""
# read here, once: `inspect` finds no source in a packed module while another thread asks for the same
_SOURCES = {
    module.__name__.rpartition(".")[2]: inspect.getsource(module)
    for module in (agent_operations, children, rates, agent)
}


def argv(*arguments: str) -> List[str]:
    """The command that reads the agent from its input and runs it."""
    return ["/usr/bin/python3", "-c", _LOADER, *arguments]


def packed() -> str:
    """The line that must come first."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_PACKAGE + "/__init__.py", "")
        for name, source in _SOURCES.items():
            archive.writestr("{}/{}.py".format(_PACKAGE, name), source)
    return base64.b64encode(stream.getvalue()).decode() + "\n"
