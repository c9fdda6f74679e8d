"""A program's settings: a JSON file that deploy writes."""

from __future__ import annotations

import json
from typing import Any


class SettingsError(Exception):
    """The file is not there, or not as it should be; never with its content, which may be a password."""


def load(path: str) -> dict[str, Any]:
    """The object that the file holds."""
    try:
        with open(path, encoding="utf-8") as stream:
            settings = json.load(stream)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error
    if not isinstance(settings, dict):
        raise SettingsError(f"{path}: not a JSON object")
    return settings
