"""The record of an upgrade that is under way, on the first controller."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from typing import Any

from ..._shared import atomic_file, settings
from . import DIRECTORY, RECORD

Record = dict[str, Any]


def read() -> Record:
    """The record; empty where no upgrade is under way."""
    try:
        return settings.load(RECORD)
    except settings.SettingsError:
        return {}


def update(values: Mapping[str, Any]) -> bool:
    """Merge values into the record; whether it changed."""
    before = read()
    after = {**before, **values}
    if after != before:
        os.makedirs(DIRECTORY, 0o700, exist_ok=True)
        atomic_file.write_synced(RECORD, json.dumps(after, sort_keys=True) + "\n", 0o600)
    return after != before


def end() -> bool:
    """Remove the record, and what was kept to go back to."""
    there = os.path.isdir(DIRECTORY)
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    return there
