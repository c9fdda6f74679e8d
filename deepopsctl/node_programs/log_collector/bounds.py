"""Which of the collected journals go, and which are closed so that they can: by age, and by the room that they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

DAY_S = 86400.0


@dataclass(frozen=True)
class Journal:
    """One file. `first` and `last`: when the entries in it are from, unix seconds; `last` is when we got it."""

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
    """For how long, and how much of it."""

    keep_s: float
    most_bytes: int

    @property
    def closed_after_s(self) -> float:
        """An entry goes with its file: the file is closed after a quarter of the time, so none stays much longer."""
        return max(DAY_S, self.keep_s / 4)


def too_old(journals: Sequence[Journal], bounds: Bounds, now: float) -> List[Journal]:
    """Closed files whose last entry is older than entries are kept."""
    return [each for each in journals if each.closed and each.last < now - bounds.keep_s]


def to_close(journals: Sequence[Journal], bounds: Bounds, now: float) -> List[Journal]:
    """Files that are written to and have old entries."""
    return [each for each in journals if not each.closed and min(each.first, each.last) < now - bounds.closed_after_s]


def too_much(journals: Sequence[Journal], most_bytes: int) -> Tuple[List[Journal], List[Journal]]:
    """What has to go, and what has to be closed first, to stay below a size.

    Who fills the room pays: of the node that has most, its oldest file. A node gone mad costs no other node's logs.
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
    """How much a node has; of two that have as much, the one pays that can at once."""
    return sum(each.size for each in files), files[-1].closed
