"""The JSON Schemas as files, and their copies in a cluster directory, which an editor finds by a relative path."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from deepopsctl.files import write_atomic

# of cluster.yml and people.yml; scripts/json-schemas writes what is copied
COPIED = ("cluster", "people")
DIRECTORY = ".schemas"


def text_of(name: str) -> str:
    """The text of a schema."""
    return importlib.resources.files("deepopsctl").joinpath("schemas", f"{name}.json").read_text("utf-8")


def first_line(name: str) -> str:
    """What an editor looks for at the beginning of a file: where the schema is."""
    return f"# yaml-language-server: $schema={DIRECTORY}/{name}.json\n"


def copy_schemas(directory: Path) -> None:
    """Make the copies; a cluster directory that has no such directory wants none."""
    for name in COPIED:
        path, text = directory / DIRECTORY / f"{name}.json", text_of(name)
        if path.parent.is_dir() and not (path.is_file() and path.read_bytes() == text.encode()):
            write_atomic(path, text)
