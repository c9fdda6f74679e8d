"""Whether the wheels are whole that users install: each can be read to its end, and has the recorded hash."""

from __future__ import annotations

import os
import random
import time
import zipfile
from collections.abc import Mapping

from ..._shared import identities
from ..._shared.checks import FAIL, PASS, Check
from ..._shared.wheels import sha256_of
from .checks import check

WHEELS = "environment-wheels"
# a wheelhouse may have hundreds of GB: those that do not fit into this time are compared the next time, in other order
LIMIT_S = 60


def verify_wheelhouse(host: str, directory: str, hashes: Mapping[str, str], limit_s: float = LIMIT_S) -> list[Check]:
    """One check about all wheels of the directory; `hashes` are those of wheels.sha256, by file name."""
    try:
        there = sorted(name for name in os.listdir(directory) if name.endswith(".whl"))
    except OSError as error:
        text = f"{directory}: {error.strerror}"
        return [check(WHEELS, host, FAIL, "no wheelhouse", len(hashes), "wheels", text)]
    faults: dict[str, str] = {name: "is missing" for name in hashes if name not in there}
    for name in there:
        fault = _torn(os.path.join(directory, name))
        if fault:
            faults[name] = fault
    left = [name for name in there if name in hashes and name not in faults]
    random.shuffle(left)
    compared, until = 0, time.monotonic() + limit_s
    for name in left:
        if time.monotonic() > until:
            break
        compared += 1
        if _digest(os.path.join(directory, name)) != hashes[name]:
            faults[name] = "has another content than when it was added"
    total = len(set(there) | set(hashes))
    sentences = [f"{name} {fault}" for name, fault in sorted(faults.items())]
    texts = [identities.first_few(sentences)] if faults else []
    texts += [f"{compared} of {len(left)} hashes compared"] if compared < len(left) else []
    status = FAIL if faults else PASS
    return [check(WHEELS, host, status, total - len(faults), total, "wheels", "; ".join(texts))]


def _torn(path: str) -> str:
    """What is wrong with a file that pip could not open; '' for nothing. The list of its files is at a wheel's end."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return f"is not whole: {error}"
    return "" if any(name.endswith(".dist-info/METADATA") for name in names) else "has no METADATA"


def _digest(path: str) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        return str(error)
