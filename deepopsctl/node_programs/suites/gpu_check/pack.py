"""gpucheck as one file that any Python from 3.8 on runs: copy it to a node, `python3 gpucheck.pyz`."""

from __future__ import annotations

_MAIN = "import sys\n\nfrom deepopsctl.node_programs.suites.gpu_check.cli import main\n\nsys.exit(main())\n"


def packed() -> bytes:
    """The file's content."""
    # not on a node, where the programs are packed already
    from ...shipping import archive

    return b"#!/usr/bin/env python3\n" + archive("gpu_check", _MAIN)
