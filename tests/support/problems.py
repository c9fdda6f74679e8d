"""What is wrong with an input, as its reader hears of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepopsctl.errors import InputError, Problem


def problems_of(act: Callable[..., object], *arguments: object, **options: object) -> tuple[Problem, ...]:
    """The problems for which this call is refused; every one says what to do."""
    with pytest.raises(InputError) as caught:
        act(*arguments, **options)
    assert all(problem.hint for problem in caught.value.problems)
    return caught.value.problems


def faults(act: Callable[..., object], *arguments: object, **options: object) -> list[str]:
    """The same, as lines: where and what."""
    return [f"{problem.where}: {problem.message}" for problem in problems_of(act, *arguments, **options)]
