"""Where users keep files: what a node has of it, and makes. Wrappers over deepopsctl.environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepopsctl.environment import spaces
from deepopsctl.storage import writer


def environment_spaces_on(
    entries: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]], host: str
) -> list[dict[str, str]]:
    """The spaces that users of a node find: [{name, path, by, variable, link}]."""
    return spaces.spaces_on(entries, writer.from_variable(mounts), host)


def environment_spaces_made(
    entries: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]], host: str, first_choice: Sequence[str]
) -> list[dict[str, object]]:
    """Where a node makes the directories of users and groups: [{path, by, mounted}]."""
    return spaces.spaces_made_on(entries, writer.from_variable(mounts), host, first_choice)


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return {
            "environment_spaces_made": environment_spaces_made,
            "environment_spaces_on": environment_spaces_on,
        }
