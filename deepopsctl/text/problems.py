"""Collects everything wrong with an input, so that a person mends it in one go."""

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
    """The faults found so far in one or more inputs."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._spoilt: set[str] = set()

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, where: str, message: str, hint: str = "") -> None:
        """Note one fault; `where` is FILE:LINE or the name of an option."""
        if where not in self._spoilt:
            self._problems.append(Problem(where, message, hint))

    def refuse(self, where: str, field: str, refusal: RefusedError) -> None:
        """Note a refused value of `field` ('' where the place alone says enough)."""
        self.add(where, f"{field}: {refusal.message}" if field else refusal.message, refusal.hint)

    def refuse_similar(self, where: str, field: str, refusals: Sequence[RefusedError]) -> None:
        """Note the first of many faults of one kind at one place, and how many more there are."""
        if refusals:
            more = f" (and {len(refusals) - 1} more like it)" if len(refusals) > 1 else ""
            self.refuse(where, field, RefusedError(refusals[0].message + more, refusals[0].hint))

    def refuse_line(self, where: str, refusal: RefusedError) -> None:
        """Note a fault that spoils its whole line: what else seems wrong there only follows from it."""
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
