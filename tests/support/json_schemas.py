"""The JSON Schemas that come with deepopsctl, as tests use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from deepopsctl.cluster.schemas import DIRECTORY, OUTPUT


@cache
def validator(name: str) -> Draft202012Validator:
    """That of a schema, as it is shipped."""
    schema = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(name: str, document: object) -> list[str]:
    """What a schema has against a document, each with its path; of several forms, what the nearest lacks."""
    # dates of YAML are texts in JSON
    plain = json.loads(json.dumps(document, default=str))
    return [text for error in validator(name).iter_errors(plain) for text in _texts(error)]


def _texts(error: ValidationError) -> Iterator[str]:
    if not error.context:
        yield f"{error.json_path}: {error.message}"
    for inner in error.context or ():
        yield from _texts(inner)


def require_documented(document: dict[str, Any]) -> None:
    """Refuse a `--json` object that is not one of the schema's."""
    faults = problems(OUTPUT, document)
    assert not faults, f"{document.get('command')}: {faults}"
