"""Processes that programs leave behind, or don't."""

from __future__ import annotations

from pathlib import Path


def runs(pid: int) -> bool:
    """Whether a process is there; one that was killed, and is still to be collected, is not."""
    try:
        return "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
