"""Values of any type and size from nodes, as typed ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import deepopsctl
from deepopsctl.model.cluster import Node, Role
from deepopsctl.slurm.state import parse_slurm_state
from deepopsctl.status.nodes import Answer, NodeStatus, with_answer
from deepopsctl.text import answers
from deepopsctl.text.answers import Fields, OversizedError, RequiredFields, mappings, moment, number, texts, words

PACKAGE = Path(deepopsctl.__file__).parent
HOSTILE: list[Any] = [
    None,
    True,
    1,
    -1.5,
    float("nan"),
    float("inf"),
    10**400,
    "x",
    "9" * 5000,
    [],
    [[]],
    {},
    {"a": [1]},
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_node_answers_has_the_type_that_is_asked_for(value: Any) -> None:
    fields = Fields.of({"key": value})
    for kind, read in (
        (str, fields.text), (int, fields.number), (float, fields.real), (bool, fields.yes), (tuple, fields.texts),
        (dict, fields.words), (Fields, fields.part), (tuple, fields.parts), (dict, fields.lists),
    ):  # fmt: skip
        assert type(read("key")) is kind
    assert all(isinstance(part, Fields) for _, part in fields.members("key"))
    assert moment(value) is None or value in (1, "9" * 5000)


def test_numbers_may_be_written_in_digits_and_nothing_else_is_one() -> None:
    assert [number(value) for value in ("17", 17, 17.9, "1_7", "-1", "٣", True, [17])] == [17, 17, 17, 0, 0, 0, 0, 0]


def test_entries_of_another_type_are_ignored() -> None:
    assert mappings([{"a": 1}, "b", None]) == [{"a": 1}]
    assert texts("abc") == ()
    assert words({1: 2}) == {"1": "2"}
    assert Fields({"a": {"b": {"c": 1}, "d": 2}}).members("a").__next__()[1].number("c") == 1


def test_a_part_of_a_list_does_not_pass_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_ENTRIES", 2)
    with pytest.raises(OversizedError, match="a list of 3 entries"):
        texts(["a", "b", "c"])


def test_too_many_jobs_leave_the_state_of_slurm_unknown_and_too_many_differences_that_of_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "MOST_ENTRIES", 2)
    slurm = parse_slurm_state({"controller_up": True, "jobs": [{"id": "1"}] * 3})
    node = with_answer(NodeStatus(Node("cn1", frozenset({Role.COMPUTE}))), {"components": {key: {} for key in "abc"}})

    assert (slurm.controller_up, slurm.jobs, node.answer) == (False, (), Answer.FAILED)
    assert "a list of 3 entries" in slurm.error


def test_a_time_beyond_the_calendar_is_none() -> None:
    assert [moment(value) for value in (1e18, -5, "soon")] == [None] * 3
    assert f"{moment(86_400 * 365):%F}" == "1971-01-01"


@pytest.mark.parametrize("read", ["text", "number", "real", "yes", "texts", "words", "part", "parts", "lists"])
def test_a_required_value_that_is_missing_is_refused_by_name(read: str) -> None:
    with pytest.raises(ValueError, match=r"^key: "):
        getattr(RequiredFields({}), read)("key")


def test_types_of_values_are_looked_at_in_one_place() -> None:
    """No `value if isinstance(value, list) else []`, and what resembles it, anywhere else but in the lab."""
    result = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not {"node_programs", "_content", "lab"} & {*path.parts} and path.name != "answers.py"
        if "if isinstance(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.IfExp) and _is_guard(node)
    ]
    assert result == []


def _is_guard(node: ast.IfExp) -> bool:
    types = "Mapping|Sequence|dict|list|tuple|str|int|float"
    asked = re.fullmatch(rf"isinstance\(.*, \(?(?:{types})\b.*\)", ast.unparse(node.test))
    return asked is not None and ast.unparse(node.orelse) in ("[]", "()", "{}", "''", "set()", "0", "0.0")
