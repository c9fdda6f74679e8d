"""Results as files: read strictly, so that only gpucheck's own results are evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .measuring import SCHEMA
from .results import PASS, WARN, status_of

_SHAPE = {"schema": int, "node": str, "when": str, "versions": dict, "gpus": list, "group": dict}
COMMAND = "gpucheck"


class UnreadableError(Exception):
    """A file is not a result of gpucheck; the text has its name and the reason."""


def document(results: list[Any], checks: list[dict[str, str]]) -> dict[str, Any]:
    """What --json prints."""
    return {
        "schema": SCHEMA,
        "command": COMMAND,
        # no passed check is not success
        "ok": status_of(checks) in (PASS, WARN),
        "results": results,
        "checks": checks,
    }


def read_results(path: Path) -> list[Any]:
    """The results in a file that --json wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UnreadableError(f"{path}: no JSON: {error}") from None
    if (
        not isinstance(content, dict)
        or content.get("command") != COMMAND
        or not isinstance(content.get("results"), list)
    ):
        raise UnreadableError(f"{path}: no result of gpucheck --json")
    for result in content["results"]:
        _demand_shape(path, result)
    return list(content["results"])


def _demand_shape(path: Path, result: Any) -> None:
    if not isinstance(result, dict):
        raise UnreadableError(f"{path}: a result is not an object")
    if result.get("schema") != SCHEMA:
        raise UnreadableError(f"{path}: schema {result.get('schema')}, this gpucheck reads {SCHEMA}")
    for key, expected_type in _SHAPE.items():
        if not isinstance(result.get(key), expected_type):
            raise UnreadableError(f"{path}: {key} is missing or of the wrong type")
    for gpu in result["gpus"]:
        if not isinstance(gpu, dict) or not isinstance(gpu.get("index"), int):
            raise UnreadableError(f"{path}: a GPU without an index")
