"""`deepops-backup`: make a set, list the sets, restore one into a throw-away Slurm and look whether it is whole."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..._shared import atomic_file, settings
from ..._shared.command import CommandError
from ..._shared.prometheus_text import TEXTFILE_DIRECTORY, Families
from ..._shared.settings import SettingsError
from . import CONFIG, DIRECTORY, LAST, MANIFEST, MONITORING, UNDER_WAY, BackupError
from .collect import Manifest, collect
from .rehearse import rehearse
from .repository import Repository

OK, FAILED, INVALID = 0, 1, 3
_DAY = 86_400

Config = Mapping[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deepops-backup", description=__doc__.partition(": ")[2])
    parser.add_argument("--config", default=CONFIG, help="what to save, and where (default: %(default)s)")
    parser.add_argument("what", choices=["run", "list", "verify", "open"], help="verify changes nothing on this host")
    parser.add_argument("snapshot", nargs="?", default="", help="for verify; without it, the newest")
    options = parser.parse_args(arguments)
    try:
        config = settings.load(options.config)
        with _alone(_directory(config)):
            sys.stdout.write(json.dumps(_ACTIONS[options.what](config, options.snapshot)) + "\n")
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return INVALID
    except (BackupError, CommandError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    return OK


def make_backup(config: Config, _snapshot: str = "") -> dict[str, Any]:
    """Make a set, store it, read it back; how it ended is kept for `deepopsctl status` and Prometheus."""
    for path, what in UNDER_WAY.items():
        if os.path.exists(path):
            raise BackupError(f"{what} is under way: the next backup is made after its end")
    started, path = time.time(), os.path.join(_directory(config), LAST)
    last = _last(path)
    result: dict[str, Any] = {"schema": 1, "started": int(started), "last_good": last.get("last_good", {})}
    # a stop by a signal, or a fault of the program
    result["message"] = "it was cut off: see its journal"
    try:
        result["last_good"] = _save(config, prune=int(started) // _DAY != int(last.get("started", 0)) // _DAY)
        result["message"] = ""
        return dict(result["last_good"])
    except (BackupError, CommandError, OSError) as error:
        result["message"] = str(error)
        raise
    finally:
        result["seconds"] = round(time.time() - started, 1)
        atomic_file.write_synced(path, json.dumps(result) + "\n")
        _write_metrics(config, result)


def _save(config: Config, *, prune: bool) -> dict[str, Any]:
    repository = Repository(config)
    repository.prepare()
    place = os.path.join(_directory(config), "set")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place, 0o700)
    try:
        manifest = collect(config, place)
        with open(os.path.join(place, MANIFEST), "w", encoding="utf-8") as stream:
            json.dump(manifest, stream)
        size = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(place) for name in names)
        snapshot = repository.save(place, config["host"], config["parts"])
        _read_back(repository, snapshot, manifest, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    repository.forget(config["host"], config["parts"], config["keep"], prune=prune)
    jobs = manifest.get("jobs")
    return {
        "snapshot": snapshot[:8],
        "finished": manifest["finished"],
        "bytes": size,
        "parts": manifest["parts"],
        "jobs": None if jobs is None else len(jobs),
    }


def _read_back(repository: Repository, snapshot: str, manifest: Manifest, place: str) -> None:
    """A repository that returns something else than was written is not a backup."""
    for path, digest in manifest["files"].items():
        if repository.hash_of(snapshot, os.path.join(place, path)) != digest:
            raise BackupError(f"{path} in snapshot {snapshot[:8]} is not what was saved")


def _list(config: Config, _snapshot: str) -> dict[str, Any]:
    return {"schema": 1, "snapshots": [snapshot.as_object() for snapshot in Repository(config).snapshots()]}


def _verify(config: Config, snapshot: str) -> dict[str, Any]:
    return rehearse(config, Repository(config), snapshot)


def _open(config: Config, _snapshot: str) -> dict[str, Any]:
    return {"schema": 1, "there": Repository(config).opens()}


_ACTIONS = {"open": _open, "run": make_backup, "list": _list, "verify": _verify}


def _directory(config: Config) -> str:
    return DIRECTORY + "-monitoring" if MONITORING in config["parts"] else DIRECTORY


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """One at a time: the timer's and a person's."""
    os.makedirs(directory, 0o700, exist_ok=True)
    with open(os.path.join(directory, ".lock"), "w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _last(path: str) -> dict[str, Any]:
    try:
        return settings.load(path)
    except SettingsError:
        return {}


def _write_metrics(config: Config, result: Mapping[str, Any]) -> None:
    if not os.path.isdir(TEXTFILE_DIRECTORY):
        return
    metrics, good = Families(), result["last_good"]
    labels = {"part": MONITORING} if MONITORING in config["parts"] else {}
    for name, text, value in (
        ("failed", "Whether the last backup failed.", float(bool(result["message"]))),
        ("duration_seconds", "How long the last backup took.", result["seconds"]),
        ("last_good_timestamp_seconds", "When the last good backup was made.", good.get("finished", 0)),
        ("size_bytes", "Size of the last good backup before compression.", good.get("bytes", 0)),
    ):
        metrics.family("deepops_backup_" + name, text).set(value, **labels)
    path = os.path.join(TEXTFILE_DIRECTORY, f"deepops-{os.path.basename(_directory(config))}.prom")
    atomic_file.write(path, metrics.text())
