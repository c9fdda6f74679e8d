"""Rules do what they describe: each file in rules/ is a test of promtool's own kind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

RULES = sorted(Path(__file__).with_name("rules").glob("*.yml"))


@pytest.mark.parametrize("tests", RULES, ids=lambda path: path.stem)
def test_rules_give_what_their_tests_expect(tests: Path) -> None:
    done = subprocess.run(["promtool", "test", "rules", str(tests)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
