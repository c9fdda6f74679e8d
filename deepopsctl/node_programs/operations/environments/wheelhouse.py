"""The directory of wheels: what is added has the expected hash, and what is there is not replaced by anything else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from ..._shared.wheels import sha256_of
from .build import BuildError


def store(wheelhouse: str, arrived: Mapping[str, str]) -> None:
    """Copy files, {path: sha256}, into the wheelhouse under their names; each is whole at once."""
    os.makedirs(wheelhouse, mode=0o755, exist_ok=True)
    for path, sha256 in arrived.items():
        name = os.path.basename(path)
        if sha256_of(path) != sha256:
            raise BuildError(f"{name} has another hash than its lock")
        part = os.path.join(wheelhouse, f".{name}.part")
        shutil.copyfile(path, part)
        os.chmod(part, 0o644)
        os.replace(part, os.path.join(wheelhouse, name))
