"""The header of files that deepopsctl manages."""

from __future__ import annotations

_WRITTEN = "# Written by deepopsctl{}; the next deploy overwrites changes made here.\n"
MANAGED_HEADER = _WRITTEN.format("")
MANAGED_HEADER_FROM_CLUSTER = _WRITTEN.format(" from cluster.yml")
MANAGED_HEADER_FROM_ALERTS = _WRITTEN.format(", with what monitoring_alerts changes")


def is_written_here(text: str) -> bool:
    """Whether deepopsctl wrote a file, of whatever kind."""
    return text.lstrip().startswith(_WRITTEN.partition("{}")[0])
