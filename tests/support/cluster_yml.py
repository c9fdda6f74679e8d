"""What is wrong with the text of a cluster.yml."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.errors import InputError


def faults(text: str) -> list[str]:
    """Where and what of every fault; each has a hint, and nothing that a terminal would obey."""
    with pytest.raises(InputError) as caught:
        parse_spec(text, "cluster.yml")
    assert all(problem.hint and problem.message.isprintable() for problem in caught.value.problems)
    return [f"{problem.where} {problem.message}" for problem in caught.value.problems]
