"""What a filter plugin registers: its public functions, each by its own name."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.plugin_utils import package  # noqa: F401 (filters import it next)


def filters_of(module: Mapping[str, Any]) -> dict[str, Any]:
    """The public functions that a module defines, of its `globals()`; what it imports is none of them."""
    return {
        name: value
        for name, value in module.items()
        if isinstance(value, FunctionType) and value.__module__ == module["__name__"] and not name.startswith("_")
    }
