"""Collects all problems of an input, to report them together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deepopsctl.errors import InputError, Problem


class RefusedError(ValueError):
    """A value that can't be used: the message says what is wrong with it, the hint what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Problems:
    """The problems of one or more inputs."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._spoilt: set[str] = set()

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, where: str, message: str, hint: str = "") -> None:
        """Add one problem; `where` is FILE:LINE or the name of an option."""
        if where not in self._spoilt:
            self._problems.append(Problem(where, message, hint))

    def refuse(self, where: str, field: str, refusal: RefusedError) -> None:
        """Add a refused value of `field` ('' if the place alone is enough)."""
        self.add(where, f"{field}: {refusal.message}" if field else refusal.message, refusal.hint)

    def refuse_similar(self, where: str, field: str, refusals: Sequence[RefusedError]) -> None:
        """Add the first of several similar problems at one place, with the number of others."""
        if refusals:
            more = f" (and {len(refusals) - 1} more like it)" if len(refusals) > 1 else ""
            self.refuse(where, field, RefusedError(refusals[0].message + more, refusals[0].hint))

    def refuse_line(self, where: str, refusal: RefusedError) -> None:
        """Add a problem that makes its whole line invalid; other problems of that line are dropped."""
        self.refuse(where, "", refusal)
        self._spoilt.add(where)

    def raise_if_any(self) -> None:
        """Raise one InputError with all faults, in the order of their lines."""
        if self._problems:
            raise InputError(sorted(dict.fromkeys(self._problems), key=_by_place))


def _by_place(problem: Problem) -> tuple[str, int]:
    # cluster.yml:9 comes before cluster.yml:10; options come in the order they were checked
    match = re.fullmatch(r"(.*):(\d+)", problem.where)
    return (match[1], int(match[2])) if match else ("", 0)
