"""A build backend (PEP 517) that builds nothing: the metadata are those that the source package came with."""

from __future__ import annotations

import email.parser
import re
import shutil
from pathlib import Path


class _NoBuild:
    def get_requires_for_build_wheel(self, _settings: object = None) -> list[str]:
        return []

    def prepare_metadata_for_build_wheel(self, metadata_directory: str, _settings: object = None) -> str:
        described = email.parser.HeaderParser().parsestr(Path("PKG-INFO").read_text(encoding="utf-8"))
        name = re.sub("[^A-Za-z0-9.]+", "_", described["Name"])
        directory = Path(metadata_directory, f"{name}-{described['Version']}.dist-info")
        directory.mkdir()
        shutil.copyfile("PKG-INFO", directory / "METADATA")
        return directory.name


# pip's name for the backend of a source without pyproject.toml
__legacy__ = _NoBuild()
