"""Slurm is asked in one place, and what a node's state means is written once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import node_states, waiting
from tests.support.paths import ROOT

CLIENT = Path("plugins/module_utils/slurm/client.py")
TABLE = Path("plugins/module_utils/slurm/node_states.py")
COMMANDS = frozenset({"scontrol", "squeue", "sinfo"})
# neither asks Slurm anything
EXCEPTIONS = {
    "validate_local/reframe.py": "a scheduler of ReFrame's has that name",
    "plugins/modules/slurm_takeover_info.py": "where the program's file is: one that no package installed is replaced",
    "source_build/main.py": "the versions of two copies of one program, each by its own path",
}
# more than one word for a node in one string or set is a table
WORDS = frozenset({"NOT_RESPONDING", "INVAL", "INVALID_REG", "FAIL", "ERROR", "UNKNOWN", "POWERED_DOWN", "FUTURE"})
SOURCES = sorted(
    path.relative_to(ROOT)
    for directory in ("plugins", "deepopsctl")
    for path in (ROOT / directory).rglob("*.py")
    if not path.is_symlink()
)


@cache
def tree(path: Path) -> list[ast.AST]:
    """The nodes of a file that names a state or one of the commands."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return list(ast.walk(ast.parse(text))) if any(word in text for word in (*COMMANDS, *WORDS)) else []


def strings(path: Path) -> Iterator[ast.Constant]:
    """The string constants of a file."""
    for node in tree(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


def test_nobody_but_the_client_calls_scontrol_squeue_or_sinfo() -> None:
    callers = {
        f"{path}:{text.lineno}"
        for path in SOURCES
        if path != CLIENT and not str(path).endswith(tuple(EXCEPTIONS))
        for text in strings(path)
        # a command of a user's guide or a hint has more words, and a shell's
        if str(text.value).rpartition("/")[2] in COMMANDS
    }

    assert callers == set()


def test_each_exception_is_one() -> None:
    for name in EXCEPTIONS:
        assert any(
            str(path).endswith(name) and any(text.value in COMMANDS for text in strings(path)) for path in SOURCES
        ), name


def test_which_states_keep_jobs_away_is_in_one_table() -> None:
    tables = set()
    for path in SOURCES:
        if path == TABLE:
            continue
        for node in tree(path):
            if isinstance(node, ast.Set | ast.Tuple | ast.List):
                words = {each.value for each in node.elts if isinstance(each, ast.Constant)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = set(re.findall("[A-Z_]+", node.value)) if "|" in node.value else set()
            else:
                continue
            # who is not a person: the user `nobody`, and Slurm's
            if len(words & WORDS) > 1 or words == {"", node_states.SLURM_USER}:
                tables.add(f"{path}:{node.lineno}")

    assert tables == set()


@pytest.mark.parametrize(
    ("state", "sets"),
    [
        ("IDLE", set()),
        ("MIXED+DRAIN", {"NO_JOBS", "OUT_OF_SERVICE"}),
        ("IDLE*", {"SILENT", "UNREGISTERED", "FAULTS", "NOT_SERVING", "NO_JOBS", "NOT_MEASURED", "NOT_TESTABLE"}),
        ("IDLE+FAIL", {"FAULTS", "NOT_SERVING", "NO_JOBS", "NOT_MEASURED", "NOT_TESTABLE"}),
        ("IDLE+POWERED_DOWN", {"UNREGISTERED", "NOT_SERVING", "NO_JOBS", "NOT_MEASURED"}),
        ("MIXED+REBOOT_REQUESTED", {"JOBS_LATER"}),
        ("IDLE+REBOOT_ISSUED", {"JOBS_LATER", "NOT_MEASURED"}),
        ("IDLE+MAINTENANCE", {"JOBS_LATER"}),
        # what is up again after its reboot, and not tested yet
        ("DOWN", {"UNREGISTERED", "FAULTS", "NOT_SERVING", "NO_JOBS", "NOT_MEASURED", "OUT_OF_SERVICE"}),
    ],
)
def test_what_a_state_means_for_jobs(state: str, sets: set[str]) -> None:
    names = (
        "SILENT", "UNREGISTERED", "FAULTS", "NOT_SERVING", "NO_JOBS", "OUT_OF_SERVICE", "JOBS_LATER", "NOT_MEASURED",
        "NOT_TESTABLE",
    )  # fmt: skip

    assert {name for name in names if node_states.flags(state) & getattr(node_states, name)} == sets


class Clock:
    """In place of the module `time`: a question takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_wait_ends_with_the_answer_or_with_the_last_one_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    asked: list[float] = []

    def ask() -> float:
        asked.append(clock.now)
        return clock.now

    assert waiting.wait_until(ask, 10, 4, lambda now: now > 5) == 8
    assert waiting.wait_until(ask, 10, 4, lambda now: now < 0) == 18
    # the last pause ends with the time that is allowed
    assert asked == [0, 4, 8, 8, 12, 16, 18]
    assert waiting.wait_until(ask, 0, 4, lambda now: now < 0) == 18
