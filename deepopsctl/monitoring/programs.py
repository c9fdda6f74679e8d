"""deepopsctl's node programs (node_programs/shipping.py) as files that monitoring needs on a node."""

from __future__ import annotations

from types import ModuleType

from deepopsctl.monitoring.resources import File
from deepopsctl.node_programs import shipping


def program_files(package: ModuleType, launcher: str, module: str = "cli") -> tuple[File, ...]:
    """A package of deepopsctl's and its launcher, which is the last."""
    return tuple(File(each.path, each.content, each.mode) for each in shipping.program(package, launcher, module))
