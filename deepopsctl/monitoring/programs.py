"""Programs of our own (deepopsctl/nodeprograms.py) as files that a machine needs for monitoring."""

from __future__ import annotations

from types import ModuleType

from deepopsctl import nodeprograms
from deepopsctl.monitoring.needs import File


def program_files(package: ModuleType, launcher: str, module: str = "cli") -> tuple[File, ...]:
    """A package of deepopsctl's and its launcher, which is the last."""
    return tuple(File(each.path, each.content, each.mode) for each in nodeprograms.program(package, launcher, module))
