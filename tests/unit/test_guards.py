"""tests/guards.toml, by which `make mutation` breaks each guard: it follows the code that it names."""

from __future__ import annotations

import tomllib

from tests.support.paths import ROOT


def test_every_guard_is_in_its_file_once_and_its_tests_exist() -> None:
    entries = tomllib.loads((ROOT / "tests" / "guards.toml").read_text(encoding="utf-8"))["guard"]
    counts = {
        entry["what"]: (ROOT / entry["file"]).read_text(encoding="utf-8").count(entry["old"]) for entry in entries
    }

    assert {what: count for what, count in counts.items() if count != 1} == {}
    assert len(counts) == len(entries)
    assert [test for entry in entries for test in entry["tests"] if not (ROOT / "tests" / test).exists()] == []
