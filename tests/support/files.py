"""Files and programs that a test lays out."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    """Write each text below a directory, with the directories above it; the root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def write_program(path: Path, script: str) -> Path:
    """Write a shell script that can be run; its path."""
    write_files(path.parent, {path.name: f"#!/bin/sh\n{script}\n"})
    path.chmod(0o755)
    return path


def build_package(directory: Path, name: str, version: str, architecture: str = "all", **fields: str) -> Path:
    """Build a Debian package with nothing in it but these fields of its control file; its path."""
    control = {"Package": name, "Version": version, "Architecture": architecture, **fields}
    described = {**control, "Maintainer": "Test <test@example.com>", "Description": "test"}
    lines = "".join(f"{field}: {value}\n" for field, value in described.items())
    tree = write_files(directory / "tree", {"DEBIAN/control": lines})
    path = directory / f"{name}_{version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(path)], check=True, capture_output=True)
    return path
