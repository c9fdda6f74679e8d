"""A package index of a few wheels, for the real pip."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest


def make(directory: Path, name: str, version: str, tags: str, requires: str = "") -> Path:
    """A wheel as pip accepts it, without programs."""
    path = directory / f"{name}-{version}-{tags}.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tags}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip knows, and nothing else."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    # pip's word for "no": a source would be built with what is here
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    return directory
