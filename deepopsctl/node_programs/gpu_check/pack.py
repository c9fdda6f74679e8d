"""gpucheck as one file that any Python from 3.8 on runs: copy it to a node, `python3 gpucheck.pyz`."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_START = b"#!/usr/bin/env python3\n"
_MAIN = "import sys\n\nfrom deepopsctl.node_programs.gpu_check.cli import main\n\nsys.exit(main())\n"
# one fixed time: the same sources make the same bytes
_TIME = (2026, 1, 1, 0, 0, 0)


def packed() -> bytes:
    """The file's content."""
    here = Path(__file__).parent
    sources = {
        "__main__.py": _MAIN,
        "deepopsctl/__init__.py": (here.parents[1] / "__init__.py").read_text(encoding="utf-8"),
        "deepopsctl/node_programs/__init__.py": (here.parent / "__init__.py").read_text(encoding="utf-8"),
    }
    for path in sorted(here.rglob("*")):
        if path.suffix in (".py", ".ptx"):
            name = path.relative_to(here).as_posix()
            sources[f"deepopsctl/node_programs/gpu_check/{name}"] = path.read_text(encoding="utf-8")
    raw = io.BytesIO()
    raw.write(_START)
    with zipfile.ZipFile(raw, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sources.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), text, zipfile.ZIP_DEFLATED)
    return raw.getvalue()
