"""Prometheus' own tool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def errors(*words: str | Path, text: str = "") -> str:
    """What it prints of what it does not accept; nothing where it accepts it."""
    argv = ["promtool", *map(str, words)]
    done = subprocess.run(argv, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode() if done.returncode else ""


def failures(directory: Path, tests: Mapping[str, Any]) -> str:
    """What it prints of tests of rules that fail; nothing where they pass."""
    path = directory / "tests.yml"
    # JSON is YAML
    path.write_text(json.dumps(tests), encoding="utf-8")
    return errors("test", "rules", path)
