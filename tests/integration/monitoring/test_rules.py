"""Rules do what they describe: each file in rules/ is a test of promtool's own kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.monitoring import promtool

RULES = sorted(Path(__file__).with_name("rules").glob("*.yml"))


@pytest.mark.parametrize("tests", RULES, ids=lambda path: path.stem)
def test_rules_give_what_their_tests_expect(tests: Path) -> None:
    assert promtool.errors("test", "rules", tests) == ""
