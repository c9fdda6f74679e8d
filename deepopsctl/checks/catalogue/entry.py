"""One type of check, as reports show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One type of check. `verifies` is a sentence for the report, `advice` says what to do about a failure."""

    group: str
    title: str
    verifies: str
    advice: str
    short: str = ""

    @property
    def column(self) -> str:
        """The short title."""
        return self.short or self.title
