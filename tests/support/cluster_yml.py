"""What is wrong with the text of a cluster.yml."""

from __future__ import annotations

from deepopsctl.cluster.spec import parse_spec
from tests.support.problems import problems_of


def faults(text: str) -> list[str]:
    """Where and what of every fault; each has a hint, and nothing that a terminal would obey."""
    problems = problems_of(parse_spec, text, "cluster.yml")
    assert all(problem.message.isprintable() for problem in problems)
    return [f"{problem.where} {problem.message}" for problem in problems]
