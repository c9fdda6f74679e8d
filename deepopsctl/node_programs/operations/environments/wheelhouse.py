"""The directory of wheels: what is added has the expected hash, and what is there is not replaced by anything else."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Mapping
from typing import IO

from .build import BuildError


def store(wheelhouse: str, arrived: Mapping[str, str], archives: Mapping[str, Mapping[str, str]]) -> None:
    """Copy files, {path: sha256}, and members of archives, {path: {name: sha256}}, into the wheelhouse."""
    os.makedirs(wheelhouse, mode=0o755, exist_ok=True)
    for path, sha256 in arrived.items():
        with open(path, "rb") as stream:
            _add(wheelhouse, os.path.basename(path), stream, sha256)
    for path, members in archives.items():
        with tarfile.open(path) as archive:
            for name, sha256 in members.items():
                member = archive.extractfile(name)
                if member is None:
                    raise BuildError(f"{path}: {name} is not a file")
                _add(wheelhouse, name, member, sha256)


def _add(wheelhouse: str, name: str, source: IO[bytes], sha256: str) -> None:
    """One file, which is there at once, and only when it is whole."""
    part, digest = os.path.join(wheelhouse, f".{name}.part"), hashlib.sha256()
    with open(part, "wb") as sink:
        for chunk in iter(lambda: source.read(2**20), b""):
            digest.update(chunk)
            sink.write(chunk)
    if digest.hexdigest() != sha256:
        os.unlink(part)
        raise BuildError(f"{name} has another hash than its lock")
    os.chmod(part, 0o644)
    os.replace(part, os.path.join(wheelhouse, name))
