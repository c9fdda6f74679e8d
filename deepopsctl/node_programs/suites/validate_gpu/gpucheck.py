"""gpucheck inside a job: it comes over the job's input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..._shared import archive

_BEGINNING = '{\n "schema":'


def argv(arguments: Sequence[str]) -> list[str]:
    """The command that reads the archive from its input and runs gpucheck; a GPU that fails is not a failed job."""
    return archive.argv("suites.gpu_check.cli", *arguments)


def result(out: str) -> dict[str, Any] | None:
    """The node's result in what the job printed (a site's prolog may print as well); None where there is none."""
    start = out.find(_BEGINNING)
    if start < 0:
        return None
    try:
        document, _end = json.JSONDecoder().raw_decode(out, start)
        entry = document["results"][0]
    except (ValueError, KeyError, IndexError):
        return None
    return entry if isinstance(entry, dict) else None
