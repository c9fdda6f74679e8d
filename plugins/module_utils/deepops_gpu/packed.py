"""The packed gpucheck on a node: it lives in memory, so that no file is ever left there."""

from __future__ import annotations

# An anonymous file in memory is gone with the process, however that ends; the processes that measure, or make a load,
# find it by the same path.
_LOADER = """
import base64, os, sys
memory = os.memfd_create("gpucheck")
with os.fdopen(os.dup(memory), "wb") as stream:
    stream.write(base64.b64decode({packed}))
sys.path.insert(0, "/proc/%d/fd/%d" % (os.getpid(), memory))
sys.argv = ["gpucheck", *{arguments}]
from deepopsctl.node_programs.gpu_check.cli import main
{run}
"""


def loader(packed: str, arguments: str, run: str) -> str:
    """A Python program; `packed` (base64) and `arguments` are expressions in it, `run` is what calls main()."""
    return _LOADER.format(packed=packed, arguments=arguments, run=run)
