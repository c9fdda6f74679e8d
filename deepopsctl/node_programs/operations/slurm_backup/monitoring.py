"""What Prometheus and Grafana have, copied while they run, examined, and put back.

Prometheus never changes a block once it is there, and merges old ones into new ones. Its snapshot API would be for
everybody who has the password of its page, along with the deletion of data, so it stays off. What is not in a block yet
are the last two to three hours.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ..._shared import command
from ..._shared.values import format_size
from . import MANIFEST, BackupError, unprivileged

PROMETHEUS, GRAFANA = "prometheus.service", "grafana-server.service"
GRAFANA_DATABASE = "/var/lib/grafana/grafana.db"
# where a set has them
BLOCKS, DATABASE = "prometheus", "grafana.db"
# of the step that knows the password of Grafana's administrator, which a database from before may not have
ADMIN_RECORD = "/var/lib/deepopsctl/records/monitoring.grafana_admin.json"
ATTEMPTS = 5
_BLOCK = re.compile("[0-9A-HJKMNP-TV-Z]{26}")
_DATA = re.compile(r"--storage\.tsdb\.path=(\S+)")
# a name that Prometheus removes when it starts
_UNFINISHED = ".tmp-for-creation"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ANSWER_S, _STOP_S, _EXAMINE_S = 60, 600, 3600
# who reads a set, with nothing else in reach
_READER = "nobody"
_ALONE = ("unshare", "--net", "--ipc", "--pid", "--fork", "--kill-child")
_CHECK = f"""\
import sqlite3, sys
(result,) = sqlite3.connect("file:{DATABASE}?mode=ro", uri=True).execute("PRAGMA integrity_check").fetchone()
sys.exit(0 if result == "ok" else result)
"""

Result = dict[str, Any]


def collect(target: str) -> Result:
    """Fill a directory; what it has."""
    blocks = copy_blocks(data_directory(), os.path.join(target, BLOCKS))
    with_grafana = os.path.lexists(GRAFANA_DATABASE)
    if with_grafana:
        copy_database(GRAFANA_DATABASE, os.path.join(target, DATABASE))
    return {"blocks": blocks, "grafana": with_grafana}


def data_directory() -> str:
    """Where Prometheus stores its data."""
    shown = command.run(["systemctl", "show", "--property", "ExecStart", "--value", PROMETHEUS], _ANSWER_S)
    stated = _DATA.findall(shown.output)
    if not stated or not os.path.isdir(stated[-1]):
        raise BackupError("Prometheus is not deployed here")
    return str(stated[-1])


def copy_blocks(source: str, target: str) -> list[str]:
    """Link or copy all blocks; again where Prometheus has merged some meanwhile."""
    owner = os.stat(source).st_uid
    for _attempt in range(ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target, 0o700)
        names = sorted(filter(_BLOCK.fullmatch, os.listdir(source)))
        try:
            for name in names:
                _copy_block(os.path.join(source, name), os.path.join(target, name), owner)
        except FileNotFoundError:
            continue
        return names
    raise BackupError("Prometheus merges its blocks all the time")


def _copy_block(source: str, target: str, owner: int) -> None:
    for path, _directories, names in os.walk(source, onerror=_raise):
        there = os.path.normpath(os.path.join(target, os.path.relpath(path, source)))
        os.makedirs(there, 0o700)
        for name in names:
            _link_file(os.path.join(path, name), os.path.join(there, name), owner)
    # removed first, and written last
    os.stat(os.path.join(target, "meta.json"))


def _raise(error: OSError) -> None:
    raise error


def _link_file(source: str, target: str, owner: int) -> None:
    """A link takes no space, where both are on one file system. Prometheus's directory is not only root's."""
    with open(os.open(source, _READ), "rb") as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != owner:
            raise BackupError(f"{source} is not a file of Prometheus")
        with contextlib.suppress(OSError):
            # with a directory, however needless, Python follows the link in /proc
            os.link(f"/proc/self/fd/{stream.fileno()}", target, src_dir_fd=stream.fileno())
            return
        with open(target, "xb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)


def copy_database(source: str, target: str) -> None:
    """Copy an SQLite database while Grafana writes it."""
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise BackupError(f"{source} is not a file")
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with _database(source) as live, contextlib.closing(sqlite3.connect(target)) as copy:
            live.backup(copy)
    except sqlite3.Error as error:
        raise BackupError(f"{source}: {error}") from error
    require_whole(target)


@contextlib.contextmanager
def _database(path: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_ANSWER_S)) as one:
        yield one


def require_whole(path: str) -> None:
    """BackupError where SQLite has something against a database."""
    try:
        with _database(path) as database:
            (result,) = database.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.Error as error:
        result = str(error)
    if result != "ok":
        raise BackupError(f"{os.path.basename(path)}: {result}")


def examine(directory: str) -> Result:
    """Read a set with Prometheus's own tool and SQLite, without rights (its parents may be entered): what it has."""
    with open(os.path.join(directory, MANIFEST), encoding="utf-8") as stream:
        saved = json.load(stream)["monitoring"]
    blocks = os.path.join(directory, BLOCKS)
    count = samples(blocks)
    listed = _read(blocks, ["promtool", "tsdb", "list", "."]) if saved["blocks"] else ""
    there = {line.split()[0] for line in listed.splitlines() if line.split()}
    missing = sorted(set(saved["blocks"]) - there)
    if missing:
        raise BackupError(f"promtool can't read {', '.join(missing[:3])}")
    if saved["grafana"]:
        _read(directory, [sys.executable, "-IB", "-c", _CHECK])
    return {"blocks": len(saved["blocks"]), "samples": count, "grafana": saved["grafana"]}


def _read(directory: str, argv: list[str]) -> str:
    """Output of a command in a directory of the set, which is its reader's from then on: promtool writes there."""
    reader = pwd.getpwnam(_READER)
    for path, _directories, names in os.walk(directory):
        for each in (path, *(os.path.join(path, name) for name in names)):
            os.chown(each, reader.pw_uid, reader.pw_gid, follow_symlinks=False)
    words = ["env", f"--chdir={directory}", *_ALONE, *unprivileged.words_of(_READER), *argv]
    try:
        return command.require(words, _EXAMINE_S)
    except command.CommandError as error:
        raise BackupError(f"{argv[0]} can't read the set: {error}") from error


def samples(blocks: str) -> int:
    """How many samples blocks have, by what they say of themselves."""
    total = 0
    for name in os.listdir(blocks):
        with open(os.path.join(blocks, name, "meta.json"), encoding="utf-8") as stream:
            total += int(json.load(stream)["stats"].get("numSamples", 0))
    return total


def put_back(directory: str) -> Result:
    """Add a set's blocks to those of Prometheus, and put Grafana's database in the place of the one that is there.

    Nothing is lost: blocks that are there stay, and the database is set aside.
    """
    data = data_directory()
    saved = os.path.join(directory, BLOCKS)
    names = filter(_BLOCK.fullmatch, sorted(os.listdir(saved)))
    new = [name for name in names if not os.path.lexists(os.path.join(data, name))]
    _require_space([os.path.join(saved, name) for name in new], data)
    grafana = os.path.join(directory, DATABASE)
    with_grafana = os.path.isfile(grafana) and os.path.isdir(os.path.dirname(GRAFANA_DATABASE))
    with _stopped([PROMETHEUS] * bool(new) + [GRAFANA] * with_grafana):
        for name in new:
            _put_block(os.path.join(saved, name), os.path.join(data, name))
        if with_grafana:
            _put_database(grafana)
    return {"blocks": len(new), "grafana": with_grafana}


def _require_space(blocks: list[str], data: str) -> None:
    files = (os.path.join(path, name) for block in blocks for path, _, names in os.walk(block) for name in names)
    size, free = sum(map(os.path.getsize, files)), shutil.disk_usage(data).free
    if size > free:
        raise BackupError(f"{data}: {format_size(free)} are free, the set has {format_size(size)}")


def _put_block(source: str, target: str) -> None:
    owner, unfinished = os.stat(os.path.dirname(target)), target + _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    # the bytes alone: a set's attributes may give rights to a file
    shutil.copytree(source, unfinished, symlinks=True, copy_function=_copy_bytes)
    for path, _directories, names in os.walk(unfinished):
        for each in (path, *(os.path.join(path, name) for name in names)):
            os.chown(each, owner.st_uid, owner.st_gid)
            os.chmod(each, 0o755 if each == path else 0o644)
    os.rename(unfinished, target)


def _copy_bytes(source: str, target: str) -> None:
    shutil.copyfile(source, target, follow_symlinks=False)


def _put_database(source: str) -> None:
    owner, unfinished = os.stat(os.path.dirname(GRAFANA_DATABASE)), GRAFANA_DATABASE + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished)
    shutil.copyfile(source, unfinished, follow_symlinks=False)
    os.chown(unfinished, owner.st_uid, owner.st_gid)
    os.chmod(unfinished, 0o640)
    with contextlib.suppress(FileNotFoundError):
        os.link(GRAFANA_DATABASE, f"{GRAFANA_DATABASE}.before-restore-{int(time.time())}")
    for suffix in ("-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(GRAFANA_DATABASE + suffix)
    os.rename(unfinished, GRAFANA_DATABASE)
    # so that the deploy which follows sets the password again
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ADMIN_RECORD)


@contextlib.contextmanager
def _stopped(units: list[str]) -> Iterator[None]:
    """Services that run are off meanwhile; they are started again whatever happens."""
    units = [unit for unit in units if command.run(["systemctl", "is-active", unit], _ANSWER_S).ok]
    try:
        for unit in units:
            command.require(["systemctl", "stop", unit], _STOP_S)
        yield
    finally:
        for unit in units:
            command.require(["systemctl", "start", unit], _STOP_S)
