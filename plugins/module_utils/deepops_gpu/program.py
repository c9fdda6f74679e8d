"""gpucheck inside a job: it comes over the job's input and lives in memory, so that no file is ever left on a node."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence

# What `python3 -c` runs on the node. The packed program is read from an anonymous file in memory, which is gone with
# the process, however that ends; measuring processes find it by the same path. A GPU that fails is no failed job.
_LOADER = """
import base64, os, sys
memory = os.memfd_create("gpucheck")
with os.fdopen(os.dup(memory), "wb") as stream:
    stream.write(base64.b64decode(sys.stdin.buffer.readline()))
sys.path.insert(0, "/proc/%d/fd/%d" % (os.getpid(), memory))
sys.argv[0] = "gpucheck"
from deepopsctl.gpucheck.cli import main
main()
"""
_BEGINNING = '{\n "schema":'


def argv(arguments: Sequence[str]) -> List[str]:
    """The command that reads the packed program from its input and runs it."""
    return ["/usr/bin/python3", "-c", _LOADER, *arguments]


def result(out: str) -> Optional[Dict[str, Any]]:
    """The node's result in what the job printed (a site's prolog may print as well); None where there is none."""
    start = out.find(_BEGINNING)
    if start < 0:
        return None
    try:
        document, _end = json.JSONDecoder().raw_decode(out, start)
        found = document["results"][0]
    except (ValueError, KeyError, IndexError):
        return None
    return found if isinstance(found, dict) else None
