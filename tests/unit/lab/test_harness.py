"""What the tests on labs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.harness import only_user_of


def test_a_lab_of_another_run_of_tests_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with (
        only_user_of("test-a"),
        only_user_of("test-b"),
        pytest.raises(pytest.fail.Exception, match="another run of tests has the lab test-a"),
        only_user_of("test-a"),
    ):
        pass
    with only_user_of("test-a"):
        pass
