"""One number for what a run wants: if it is unchanged, so is the wish, and the nodes only have to be compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from deepopsctl import __version__

CONTENT = ("playbooks", "roles", "plugins", "group_vars")
# hardware.yml is not among them: the first deploy writes it, and slurm.conf is compared by its own hash
CLUSTER = ("cluster.yml", "inventory/group_vars", "inventory/host_vars")
IGNORED = frozenset({"__pycache__", "molecule", ".git"})


def desired_digest(content: Path, directory: Path, variables: Sequence[object]) -> str:
    """sha256 over the content, the cluster's inputs, the user's own variables and the version."""
    total = hashlib.sha256()
    total.update(f"{__version__}\0{json.dumps(list(variables), sort_keys=True, default=str)}\0".encode())
    for root, parts in ((content, CONTENT), (directory, CLUSTER)):
        for path in _files(root / part for part in parts):
            # lengths keep `a` + `bc` apart from `ab` + `c`
            name, data = path.relative_to(root).as_posix().encode(), path.read_bytes()
            total.update(f"{len(name)}:{len(data)}:".encode() + name + data)
    return total.hexdigest()


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        if root.is_file():
            yield root
        elif root.is_dir():
            yield from _files(sorted(path for path in root.iterdir() if path.name not in IGNORED))
