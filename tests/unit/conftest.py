"""What all unit tests share."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.cli import output
from tests.support.json_schemas import require_documented


@pytest.fixture(autouse=True)
def documented_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object that a test has a command print is one of the schema's."""
    json_text = output.json_text

    def checked(document: Any) -> str:
        require_documented(document)
        return json_text(document)

    monkeypatch.setattr(output, "json_text", checked)


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and texts are as wide as they are, wherever the tests run; a shell may say how wide it is."""
    monkeypatch.delenv("COLUMNS", raising=False)
