"""Which collected journals to remove, and which to close first: by age, and by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

DAY_S = 86400.0


@dataclass(frozen=True)
class Journal:
    """One file. `first` and `last`: when the entries in it are from, unix seconds; `last` is when it was received."""

    path: str
    # of which node: what comes before `@` and `.journal`
    node: str
    size: int
    first: float
    last: float
    # nothing is written to it any more
    closed: bool


@dataclass(frozen=True)
class Bounds:
    """Limits of the collection: age and size."""

    keep_s: float
    most_bytes: int

    @property
    def closed_after_s(self) -> float:
        """Entries are removed with their file, which is closed after a quarter of the time: none stays much longer."""
        return max(DAY_S, self.keep_s / 4)


def too_old(journals: Sequence[Journal], bounds: Bounds, now: float) -> List[Journal]:
    """Closed files whose last entry is older than the limit."""
    return [each for each in journals if each.closed and each.last < now - bounds.keep_s]


def to_close(journals: Sequence[Journal], bounds: Bounds, now: float) -> List[Journal]:
    """Open files with old entries."""
    return [each for each in journals if not each.closed and min(each.first, each.last) < now - bounds.closed_after_s]


def too_much(journals: Sequence[Journal], most_bytes: int) -> Tuple[List[Journal], List[Journal]]:
    """Files to remove, and files to close first, to stay below a size.

    The oldest file of the node with most data is removed first: a node that floods the log costs no other node's logs.
    """
    total = sum(each.size for each in journals)
    left: Dict[str, List[Journal]] = {}
    for each in sorted(journals, key=lambda journal: (not journal.closed, journal.last), reverse=True):
        left.setdefault(each.node, []).append(each)
    gone: List[Journal] = []
    closing: List[Journal] = []
    while total > most_bytes and any(left.values()):
        files = left[max((node for node in left if left[node]), key=lambda node: _claim(left[node]))]
        victim = files.pop()
        (gone if victim.closed else closing).append(victim)
        total -= victim.size
    return gone, closing


def _claim(files: Sequence[Journal]) -> Tuple[int, bool]:
    """Size of a node's files; of two equal nodes, the one with a closed file comes first."""
    return sum(each.size for each in files), files[-1].closed
