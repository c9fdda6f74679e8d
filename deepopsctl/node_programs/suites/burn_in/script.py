"""gpucheck as a batch script: the whole program travels in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..._shared import archive

_BEGINNING = '{"schema": 1, "command": "gpucheck-burn"'
_WIDTH = 120


def arguments(seconds: float, memory_share: float, gpus: int) -> list[str]:
    """gpucheck's arguments; on a node without GPUs it expects none."""
    about_gpus = [f"--expect={gpus}"] if gpus else ["--without-gpus"]
    return ["--json", f"--burn={seconds:g}", f"--memory-share={memory_share:g}", *about_gpus]


def script(packed: str, arguments: Sequence[str]) -> str:
    """The batch script; `packed` is base64 text."""
    lines = [packed[start : start + _WIDTH] for start in range(0, len(packed), _WIDTH)]
    program = '"""' + "\n".join(lines) + '"""'
    return "#!/usr/bin/python3" + archive.loader(
        "suites.gpu_check.cli", program, repr(list(arguments)), "sys.exit(main())"
    )


def document(out: str) -> dict[str, Any] | None:
    """gpucheck's result in a job's output (with its progress and a site's prolog); None without a result."""
    for line in reversed(out.splitlines()):
        start = line.find(_BEGINNING)
        if start >= 0:
            try:
                result = json.loads(line[start:])
            except ValueError:
                return None
            return result if isinstance(result, dict) else None
    return None
