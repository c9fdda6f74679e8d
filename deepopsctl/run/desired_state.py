"""Digest of the desired state of a run: if it is unchanged, nodes only have to be compared with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import deepopsctl
from deepopsctl import __version__
from deepopsctl.files import write_atomic

CONTENT = ("playbooks", "roles", "plugins", "group_vars", "examples")
# its filters decide what is rendered, and its programs run on nodes: a checkout changes without a new version
CODE = Path(deepopsctl.__file__).parent
# hardware.yml is handled separately: a deploy may write it, which is not a change of the desired state
CLUSTER = ("cluster.yml", "people.yml", "inventory/group_vars", "inventory/host_vars")
# users reach nodes from login nodes by the pinned keys
PINNED = ("known_hosts",)
IGNORED = frozenset({"__pycache__", "molecule", ".git"})


def desired_digest(content: Path, directory: Path, variables: Sequence[object]) -> str:
    """sha256 over the content, deepopsctl's own code, the cluster's inputs and the user's own variables."""
    total = hashlib.sha256()
    total.update(f"{__version__}\0{json.dumps(list(variables), sort_keys=True, default=str)}\0".encode())
    for root, parts in ((content, CONTENT), (CODE.parent, (CODE.name,)), (directory, CLUSTER + PINNED)):
        for path in _files(root / part for part in parts):
            # lengths keep `a` + `bc` apart from `ab` + `c`
            name, data = path.relative_to(root).as_posix().encode(), path.read_bytes()
            total.update(f"{len(name)}:{len(data)}:".encode() + name + data)
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The desired state of a run: the digest that nodes are compared with, and its inputs."""

    digest: str
    inputs: str
    hardware: str


def resolve_desired_state(inputs: str, hardware: Path, memory: Path) -> DesiredState:
    """The desired state from inputs and hardware.yml; the last run's if only that run wrote hardware.yml since."""
    now = _hash_of(hardware)
    last = _load(memory)
    if last is not None and (last.inputs, last.hardware) == (inputs, now):
        return last
    return DesiredState(hashlib.sha256(f"{inputs} {now}".encode()).hexdigest(), inputs, now)


def save_desired_state(state: DesiredState, hardware: Path, memory: Path) -> None:
    """Save the desired state of a run, with hardware.yml as that run left it."""
    document = {"digest": state.digest, "inputs": state.inputs, "hardware": _hash_of(hardware)}
    write_atomic(memory, json.dumps(document) + "\n", mode=0o600)


def _load(memory: Path) -> DesiredState | None:
    try:
        document = json.loads(memory.read_text(encoding="utf-8"))
        return DesiredState(str(document["digest"]), str(document["inputs"]), str(document["hardware"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        if root.is_file():
            yield root
        elif root.is_dir():
            yield from _files(sorted(path for path in root.iterdir() if path.name not in IGNORED))
