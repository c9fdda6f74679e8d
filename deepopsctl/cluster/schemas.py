"""JSON Schemas for editors and scripts: of cluster.yml, people.yml and what `--json` prints, made from the models.

`scripts/json-schemas` writes them to deepopsctl/schemas/, which a package has too.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from deepopsctl.content import components
from deepopsctl.model.cluster import Role
from deepopsctl.model.json_objects import OBJECTS, Refusal
from deepopsctl.model.spaces import NAMES, Owner
from deepopsctl.storage.registry import shared_options, type_handlers
from deepopsctl.text.sections import (
    ClusterFile,
    NodeSection,
    PeopleFile,
    SpaceSection,
    StorageSection,
    json_schema,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DIRECTORY = Path(__file__).parent.parent / "schemas"
CLUSTER, PEOPLE, OUTPUT = "cluster", "people", "output"

_PRIMITIVES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schemas() -> dict[str, dict[str, Any]]:
    """All of them by name."""
    return {CLUSTER: cluster_schema(), PEOPLE: people_schema(), OUTPUT: output_schema()}


def cluster_schema() -> dict[str, Any]:
    """Of cluster.yml."""
    sections = {name.value: each.section for name, each in type_handlers().items()}
    sections |= {name: each.section for name, each in shared_options().items()}
    roles = [*Role, *(role.value.replace("_", "-") for role in Role if "_" in role.value)]
    schema = json_schema(ClusterFile, {
        ClusterFile: {"components": {"type": "array", "items": {"enum": list(components())}}},
        NodeSection: {"roles": {"type": "array", "minItems": 1, "items": {"enum": [str(role) for role in roles]}}},
        SpaceSection: {"by": {"enum": [owner.value for owner in Owner]}},
        StorageSection: {
            "type": {"enum": [name.value for name in type_handlers()]},
            **{name: json_schema(section) for name, section in sections.items()},
        },
    })  # fmt: skip
    schema["properties"]["spaces"]["propertyNames"] = {"enum": list(NAMES)}
    return _whole("cluster.yml of deepopsctl", schema)


def people_schema() -> dict[str, Any]:
    """Of people.yml."""
    return _whole("people.yml of deepopsctl", json_schema(PeopleFile))


def output_schema() -> dict[str, Any]:
    """Of every `--json` object: which one it is, its `command` says; without one it is a refusal."""
    definitions: dict[str, Any] = {}
    each = [
        {
            "if": {"properties": {"command": {"const": command}}, "required": ["command"]},
            "then": {"anyOf": [_schema_of(kind, definitions) for kind in kinds]},
        }
        for command, kinds in OBJECTS.items()
    ]
    refusal = {"if": {"not": {"required": ["command"]}}, "then": _schema_of(Refusal, definitions)}
    known = {"properties": {"command": {"enum": list(OBJECTS)}}}
    return _whole("what `deepopsctl --json` prints", {"allOf": [known, *each, refusal], "$defs": definitions})


def _whole(title: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "title": title, **_with_definitions_above(schema)}


def _with_definitions_above(schema: dict[str, Any]) -> dict[str, Any]:
    """References count from the root: what inner sections define is moved there."""
    definitions: dict[str, Any] = {}

    def take(part: Any) -> Any:
        if isinstance(part, dict):
            for name, each in part.pop("$defs", {}).items():
                definitions[name] = take(each)
            return {key: take(each) for key, each in part.items()}
        return [take(each) for each in part] if isinstance(part, list) else part

    taken = take(schema)
    return {**taken, **({"$defs": definitions} if definitions else {})}


def _schema_of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Of a type that is made of TypedDicts, lists, mappings and plain values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin in (Required, NotRequired):
        return _schema_of(arguments[0], definitions)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(each, definitions) for each in arguments]}
    if origin is list:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    return {} if kind is object else {"type": _PRIMITIVES[kind]}


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {
        "type": "object",
        "description": " ".join(kind.__doc__.split()),
        "properties": {name: _schema_of(each, definitions) for name, each in hints.items()},
        "required": sorted(kind.__required_keys__),
    }
