"""The live view on a terminal. Imported only there: rich takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deepopsctl.events import Event


@contextmanager
def live_view(total: int | None) -> Iterator[Callable[[Event], None]]:
    """Placeholder."""
    from deepopsctl.cli.progress import plain_lines

    yield plain_lines()
