"""Digests of the desired state of a run: where a component's is unchanged, nodes only have to be compared with it.

A setting of one component is in that component's digest alone; all else is in the digest of each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import deepopsctl
from deepopsctl import __version__
from deepopsctl.content import components
from deepopsctl.files import write_atomic
from deepopsctl.run.setting_scope import Blocks, Scopes, blocks
from deepopsctl.text.answers import RequiredFields

CONTENT = ("playbooks", "roles", "plugins", "group_vars", "examples")
# its filters decide what is rendered, and its programs run on nodes: a checkout changes without a new version
CODE = Path(deepopsctl.__file__).parent
# hardware.yml is handled separately: a deploy may write it, which is not a change of the desired state
CLUSTER = ("cluster.yml", "people.yml")
SETTINGS = ("inventory/group_vars", "inventory/host_vars")
# made from the setting `environments`, and part of it
LOCKS = ("environments", "environments")
# users reach nodes from login nodes by the pinned keys
PINNED = ("known_hosts",)
# in `runs`
MEMORY = "desired.json"
IGNORED = frozenset({"__pycache__", "molecule", ".git"})


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run is made from: the hash of all but the site's settings, and their text by file and name."""

    common: str
    settings: Mapping[str, Blocks]

    def hashes(self) -> dict[str, str]:
        """The hash of each setting, by file and name."""
        return {
            f"{where} {name}": hashlib.sha256(block).hexdigest()
            for where, names in self.settings.items()
            for name, block in sorted(names.items())
        }


def read_inputs(content: Path, directory: Path, variables: Sequence[object]) -> Inputs:
    """The content, deepopsctl's own code, the cluster's inputs, and the user's own variables for this run."""
    total = hashlib.sha256()
    total.update(f"{__version__}\0{json.dumps(list(variables), sort_keys=True, default=str)}\0".encode())
    settings: dict[str, Blocks] = {}
    for root, parts in ((content, CONTENT), (CODE.parent, (CODE.name,)), (directory, CLUSTER + SETTINGS + PINNED)):
        for path in _files(root / part for part in parts):
            # lengths keep `a` + `bc` apart from `ab` + `c`
            where, data = path.relative_to(root).as_posix(), path.read_bytes()
            named = blocks(data) if root == directory and where.startswith(SETTINGS) else None
            if named is None:
                total.update(f"{len(where)}:{len(data)}:".encode() + where.encode() + data)
            else:
                settings[where] = named
    return Inputs(total.hexdigest(), {**settings, **_locks(directory)})


def _locks(directory: Path) -> dict[str, Blocks]:
    """The locks of environments: each counts as a part of their setting."""
    place, setting = LOCKS
    return {
        path.relative_to(directory).as_posix(): {setting: hashlib.sha256(path.read_bytes()).hexdigest().encode()}
        for path in _files([directory / place])
    }


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The desired state of a run: the digests that nodes are compared with, and what they were made from.

    `digest` is that of all, `components` those of each. `hardware` is the hash of hardware.yml that is in them.
    """

    digest: str
    components: Mapping[str, str]
    common: str
    settings: Mapping[str, str]
    hardware: str


def resolve_desired_state(inputs: Inputs, content: Path, hardware: Path, memory: Path) -> DesiredState:
    """The desired state from inputs and hardware.yml, which is as it was where only the last run has written it."""
    basis, settings = _hash_of(hardware), inputs.hashes()
    last, left = _load(memory)
    if last is not None and left == basis:
        if (last.common, last.settings) == (inputs.common, settings):
            return last
        basis = last.hardware
    names = components(content) if (content / "playbooks" / "site.yml").is_file() else ()
    scopes = Scopes(content, inputs.settings.values()) if settings and names else None
    changes = {key: scopes.of(key.rpartition(" ")[2]) if scopes else None for key in settings}

    def digest(component: str) -> str:
        own = {
            key: settings[key] for key, scope in changes.items() if not component or scope is None or component in scope
        }
        return hashlib.sha256(json.dumps([inputs.common, own, basis], sort_keys=True).encode()).hexdigest()

    return DesiredState(digest(""), {name: digest(name) for name in names}, inputs.common, settings, basis)


def save_desired_state(state: DesiredState, hardware: Path, memory: Path) -> None:
    """Save the desired state of a run, with hardware.yml as that run left it."""
    write_atomic(memory, json.dumps({**asdict(state), "left": _hash_of(hardware)}) + "\n", mode=0o600)


def changed_settings(directory: Path, memory: Path) -> tuple[str, ...]:
    """The names of the site's settings that are others than at the last deploy of this cluster directory."""
    last, _ = _load(memory)
    if last is None:
        return ()
    named = ((path, blocks(path.read_bytes()) or {}) for path in _files(directory / part for part in SETTINGS))
    settings = {path.relative_to(directory).as_posix(): each for path, each in named}
    now = Inputs("", {**settings, **_locks(directory)}).hashes()
    changed = {key for key, _ in now.items() ^ last.settings.items()}
    return tuple(sorted({key.rpartition(" ")[2] for key in changed}))


def _load(memory: Path) -> tuple[DesiredState | None, str]:
    """The last one, and the hash of hardware.yml after it."""
    try:
        document = RequiredFields.of(json.loads(memory.read_text(encoding="utf-8")))
        return document.fill(DesiredState), document.text("left")
    except (OSError, ValueError):
        return None, ""


def _hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        if root.is_file():
            yield root
        elif root.is_dir():
            yield from _files(sorted(path for path in root.iterdir() if path.name not in IGNORED))
