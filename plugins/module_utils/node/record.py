"""The node's own record of what the last good deploy made it, and what still has to be restarted.

One JSON file per component and step under STATE: the digest of the desired state, and the packages, files
and units as they were when the step had succeeded. The gate compares it with reality.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
from collections.abc import Container, Iterable, Mapping
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import atomic_file

STATE = "/var/lib/deepopsctl"
# the digest of a step that a run has begun and not ended: that is to be done even where the step is no longer wanted
UNFINISHED = "unfinished"
# the arguments of a module that saves a record; the action plugin node_state fills in what a call leaves out
STEP = {"component": {"required": True}, "step": {"required": True}, "digest": {"default": ""}}


def file_facts(path: str) -> list[Any] | None:
    """[sha256, uid, gid, mode] of a file, or None when it is not there."""
    try:
        with open(path, "rb") as stream:
            digest = hashlib.sha256(stream.read()).hexdigest()
        status = os.stat(path)
    except OSError:
        return None
    return [digest, status.st_uid, status.st_gid, status.st_mode & 0o7777]


def directory_facts(path: str) -> list[int] | None:
    """[uid, gid, mode] of a directory, or None when it is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    return [status.st_uid, status.st_gid, status.st_mode & 0o7777]


def items(
    packages: Mapping[str, str] | None = None, files: Iterable[str] = (), units: Mapping[str, bool] | None = None
) -> dict[str, Any]:
    """What a record holds: versions, these files as they are now, and the units that run (True) or must not (False)."""
    return {
        "packages": dict(packages or {}),
        "files": {path: file_facts(path) for path in files},
        "directories": {},
        "units": dict(units or {}),
        "ports": {},
    }


def _path(component: str, step: str) -> str:
    return os.path.join(STATE, "records", f"{component}.{step}.json")


def _read(path: str) -> Any:
    """What a JSON file holds; None where it is missing or can't be read."""
    try:
        with open(path, "rb") as stream:
            return json.loads(stream.read())
    except (OSError, ValueError):
        return None


def _unlink(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def write_atomically(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write bytes so that a power cut leaves the old file or the new one."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    atomic_file.write_synced(path, data, mode)


def save(component: str, step: str, digest: str, items: Mapping[str, Any]) -> None:
    """Remember a step that succeeded and what it found (see items); an empty digest forgets it."""
    path = _path(component, step)
    _unlink(_left_out_path(component, step))
    if not digest:
        _unlink(path)
        return
    document = json.dumps({"digest": digest, "items": items}, sort_keys=True).encode()
    write_atomically(path, document)


def _left_out_path(component: str, step: str) -> str:
    return os.path.join(STATE, "left-out", f"{component}.{step}.json")


def leave_out(component: str, step: str, what: str, message: str, needed_by: Iterable[str]) -> None:
    """Remember that `what`, an optional download, is left out with the steps `needed_by`, and why: until a save."""
    save(component, step, "", {})
    note = {"what": what, "message": message, "steps": [step] + list(needed_by)}
    # validations, which are not root's, see that it is there
    os.makedirs(os.path.dirname(_left_out_path(component, step)), mode=0o755, exist_ok=True)
    write_atomically(_left_out_path(component, step), json.dumps(note, sort_keys=True).encode())


def left_out(component: str, step: str) -> dict[str, Any] | None:
    """What is left out with a step: what, message, steps. None where it was not left out, or that can't be read."""
    note = _read(_left_out_path(component, step))
    return note if isinstance(note, dict) and {"what", "message", "steps"} <= set(note) else None


def begin(component: str, step: str) -> None:
    """Remember that a step was begun: until it is saved or forgotten, the next deploy has to end it."""
    save(component, step, UNFINISHED, items())


def load(component: str, step: str) -> dict[str, Any] | None:
    """The record of a step, or None when there is none or it cannot be read."""
    record = _read(_path(component, step))
    complete = isinstance(record, dict) and "digest" in record and "items" in record
    return record if complete else None


def steps(component: str) -> list[str]:
    """The steps of a component that have a record here."""
    prefix, suffix = _path(component, "*").split("*")
    return sorted(path[len(prefix) : -len(suffix)] for path in glob.glob(prefix + "*" + suffix))


def unfinished(component: str, wanted: Container[str]) -> list[str]:
    """The steps of a component whose removal began on this node and did not finish, without those in `wanted`."""
    others = [step for step in steps(component) if step not in wanted]
    return [step for step in others if (load(component, step) or {}).get("digest") == UNFINISHED]


def _pending_path(unit: str) -> str:
    return os.path.join(STATE, "pending", unit)


def mark_pending(unit: str, reason: str) -> None:
    """Note that a unit must restart, before the file that calls for it changes: survives a kill."""
    write_atomically(_pending_path(unit), reason.encode())


def is_pending(unit: str) -> bool:
    """True when a unit's restart was called for and has not happened."""
    return os.path.exists(_pending_path(unit))


def clear_pending(unit: str) -> None:
    """The restart has happened."""
    _unlink(_pending_path(unit))
