"""What the hosts of slurmctld and slurmdbd had before their upgrade, and how it is put back."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import time
from collections.abc import Mapping
from typing import Any

from ..._shared import atomic_file, command
from ..slurm_backup import ACCOUNTING, CONVERTING, STATE
from ..slurm_backup.collect import DATABASE_S, copy_state, dump, release, sql
from ..slurm_backup.dump import import_dump
from ..slurm_backup.restore import install_state
from . import DIRECTORY, FAILED, SAVED, UpgradeError
from .query import CONFIGURATION, installed

MANIFEST = SAVED + "/manifest.json"
_BACKUP, _STOP_S = "deepops-backup.service", 120
_DUMP, _STATE, _CONFIGURATION = SAVED + "/accounting.sql", SAVED + "/state", SAVED + "/slurm.conf"


def save(request: Mapping[str, Any]) -> bool:
    """Copy state and database while their daemons are stopped; done again until the first new package is installed.

    A copy that was made before an interruption may be older than what the old daemons did since. From here on no
    backup is made until `backups_go_on`: it would have half of a conversion, and a dump holds one up.
    """
    os.makedirs(DIRECTORY, 0o700, exist_ok=True)
    atomic_file.write_synced(CONVERTING, "", 0o600)
    command.run(["systemctl", "stop", _BACKUP], _STOP_S)
    new = sorted(name for name, version in installed().items() if version == request["version"])
    if new:
        if not os.path.isfile(MANIFEST):
            raise UpgradeError(f"{', '.join(new[:3])} is installed already, and nothing was saved before")
        return False
    shutil.rmtree(SAVED, ignore_errors=True)
    os.makedirs(SAVED, 0o700)
    manifest: dict[str, Any] = {"slurm": release(), "parts": request["parts"], "at": int(time.time())}
    if STATE in request["parts"]:
        if not copy_state(request["state_directory"], _STATE):
            raise UpgradeError(f"{request['state_directory']} changes: slurmctld is not stopped")
        shutil.copy2(CONFIGURATION, _CONFIGURATION)
    if ACCOUNTING in request["parts"]:
        manifest["database"] = dump(request["database"], request["cluster"], _DUMP)
    atomic_file.write_synced(MANIFEST, json.dumps(manifest) + "\n", 0o600)
    return True


def backups_go_on() -> bool:
    """The databases are converted, or again as they were."""
    there = os.path.exists(CONVERTING)
    if there:
        os.unlink(CONVERTING)
    return there


def mark(step: str) -> bool:
    """Note that a new daemon is about to start on what was saved: `state` or `accounting`."""
    path = _mark(step)
    if os.path.exists(path):
        return False
    atomic_file.write_synced(path, "", 0o600)
    return True


def is_marked(step: str) -> bool:
    """Whether that daemon has been about to start since."""
    return os.path.exists(_mark(step))


def put_back(request: Mapping[str, Any]) -> bool:
    """What a new daemon may have changed is again as it was; nothing where none was started."""
    if not os.path.isfile(MANIFEST):
        return False
    done: list[str] = []
    if os.path.exists(_mark(ACCOUNTING)):
        database = request["database"]
        sql(f"DROP DATABASE IF EXISTS `{database}`; CREATE DATABASE `{database}`;", limit_s=DATABASE_S)
        import_dump(_DUMP, database)
        done.append(ACCOUNTING)
    if os.path.exists(_mark(STATE)):
        _put_state(request["state_directory"])
        done.append(STATE)
    if os.path.isfile(_CONFIGURATION):
        facts = os.stat(CONFIGURATION)
        with open(_CONFIGURATION, "rb") as stream:
            atomic_file.put_in_place(
                atomic_file.prepare(CONFIGURATION, stream.read(), (facts.st_uid, facts.st_gid), facts.st_mode & 0o7777),
                CONFIGURATION,
            )
    for step in done:
        os.unlink(_mark(step))
    return bool(done)


def _put_state(directory: str) -> None:
    """What the new slurmctld left is kept apart, for people, where the disk has room."""
    owner = os.stat(directory)
    try:
        name = pwd.getpwuid(owner.st_uid).pw_name
    except KeyError:
        name = ""
    if name != "slurm":
        raise UpgradeError(f"{directory} belongs to {name or owner.st_uid}, not to slurm")
    shutil.rmtree(FAILED, ignore_errors=True)
    try:
        shutil.copytree(directory, FAILED, symlinks=True)
    except OSError:
        shutil.rmtree(FAILED, ignore_errors=True)
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    install_state(_STATE, directory, owner.st_uid, owner.st_gid)


def raise_timeouts(least: Mapping[str, int]) -> bool:
    """Give keys of slurm.conf at least these seconds until the deploy that ends the upgrade."""
    with open(CONFIGURATION, encoding="utf-8") as stream:
        before = text = stream.read()
    for key, seconds in least.items():
        match = re.search(rf"^{key}=(\d+)\s*$", text, re.MULTILINE | re.IGNORECASE)
        if match is None:
            text = text.rstrip("\n") + f"\n{key}={seconds}\n"
        elif int(match[1]) < seconds and int(match[1]) > 0:
            text = text[: match.start()] + f"{key}={seconds}\n" + text[match.end() :].lstrip("\n")
    if text == before:
        return False
    facts = os.stat(CONFIGURATION)
    mode, ids = facts.st_mode & 0o7777, (facts.st_uid, facts.st_gid)
    atomic_file.put_in_place(atomic_file.prepare(CONFIGURATION, text, ids, mode), CONFIGURATION)
    return True


def _mark(step: str) -> str:
    return os.path.join(SAVED, step + ".started")
