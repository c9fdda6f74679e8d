"""One kind of check, as reports show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of check. `proves` is a sentence for the report, `advice` what an administrator does about a failure."""

    group: str
    title: str
    proves: str
    advice: str
    short: str = ""

    @property
    def column(self) -> str:
        """The title where there is little room."""
        return self.short or self.title
