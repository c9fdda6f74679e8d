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
        # no passed check is no success
        "ok": status_of(checks) in (PASS, WARN),
        "results": results,
        "checks": checks,
    }


def read_results(path: Path) -> list[Any]:
    """The results in a file that --json wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableError("{}: {}".format(path, error.strerror)) from None
    except ValueError as error:
        raise UnreadableError("{}: no JSON: {}".format(path, error)) from None
    if (
        not isinstance(content, dict)
        or content.get("command") != COMMAND
        or not isinstance(content.get("results"), list)
    ):
        raise UnreadableError("{}: no result of gpucheck --json".format(path))
    for result in content["results"]:
        _demand_shape(path, result)
    return list(content["results"])


def _demand_shape(path: Path, result: Any) -> None:
    if not isinstance(result, dict):
        raise UnreadableError("{}: a result is no object".format(path))
    if result.get("schema") != SCHEMA:
        raise UnreadableError("{}: schema {}, this gpucheck reads {}".format(path, result.get("schema"), SCHEMA))
    for key, expected_type in _SHAPE.items():
        if not isinstance(result.get(key), expected_type):
            raise UnreadableError("{}: {} is missing or of the wrong type".format(path, key))
    for gpu in result["gpus"]:
        if not isinstance(gpu, dict) or not isinstance(gpu.get("index"), int):
            raise UnreadableError("{}: a GPU without an index".format(path))
