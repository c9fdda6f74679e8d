"""Makes a set: copies of slurmctld's state and Slurm's files, then a dump of the accounting database.

The database is last, so that it knows which of the state's jobs have ended meanwhile. What is in the state directory
belongs to Slurm's user: no link there is followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..._shared import command, database as database_clients, deployed, slurm_client, slurm_output
from ..._shared.values import format_size
from . import ACCOUNTING, DUMP, MONITORING, STATE, BackupError, monitoring

# slurmctld saves every 5 s; each of its files is replaced at once, but not all in the same moment
ATTEMPTS, PAUSE_S = 6, 1.0
# who was the active controller says nothing about the next one
NOT_SAVED = ("heartbeat",)
# files that a fresh controller gets from deploy; saved for people who have lost more than a controller
FILES = ("/etc/slurm", "/etc/munge/munge.key")
ROWS_OF = ("acct_table", "user_table", "qos_table", "{}_assoc_table", "{}_job_table", "{}_step_table")
_ANSWER_S = 60
# what reads or drops all of a database may take hours
DATABASE_S = 6 * 3600
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

Manifest = dict[str, Any]


def collect(config: Mapping[str, Any], target: str) -> Manifest:
    """Fill an empty directory; returns its manifest."""
    manifest: Manifest = {
        "schema": 1,
        "cluster": config["cluster"],
        "host": config["host"],
        "parts": config["parts"],
        "started": int(time.time()),
        "slurm": release(),
        # what a restore deploys again
        "components": deployed.components(),
    }
    if STATE in config["parts"]:
        manifest.update(_jobs(), state_complete=copy_state(config["state_directory"], os.path.join(target, STATE)))
        manifest["slurm_user"] = _ids_of(config["state_directory"])
        _copy_files(target)
    if ACCOUNTING in config["parts"]:
        manifest["database"] = dump(config["database"], config["cluster"], os.path.join(target, DUMP))
    if MONITORING in config["parts"]:
        manifest["monitoring"] = monitoring.collect(target)
    manifest["files"] = dict(hashes(target))
    manifest["finished"] = int(time.time())
    return manifest


def release() -> str:
    """Slurm's release on this host, `24.11.5`."""
    return slurm_client.version()


def copy_state(source: str, target: str) -> bool:
    """Copy the state while slurmctld may write it; whether nothing changed between the first file and the last."""
    if not os.path.isfile(os.path.join(source, "clustername")):
        raise BackupError(f"{source} has no state of slurmctld: is it StateSaveLocation?")
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        shutil.rmtree(target, ignore_errors=True)
        before = dict(_stamps(source))
        _copy_tree(source, target)
        if dict(_stamps(source)) == before:
            return True
    return False


def _stamps(directory: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Inode and time of each file that makes up the state."""
    for path, _directories, names in os.walk(directory):
        for name in names:
            if name not in NOT_SAVED:
                with contextlib.suppress(FileNotFoundError):
                    facts = os.lstat(os.path.join(path, name))
                    yield os.path.join(path, name), (facts.st_ino, facts.st_mtime_ns)


def _copy_tree(source: str, target: str) -> None:
    """Plain files and directories; a file that goes while it is copied is not a failure."""
    for path, _directories, names in os.walk(source):
        there = os.path.join(target, os.path.relpath(path, source))
        os.makedirs(there, 0o700, exist_ok=True)
        for name in names:
            if name not in NOT_SAVED:
                with contextlib.suppress(FileNotFoundError):
                    _copy_file(os.path.join(path, name), os.path.join(there, name))


def _copy_file(source: str, target: str) -> None:
    try:
        handle = os.open(source, _READ | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError:
        # a link, or a socket: none of slurmctld's
        return
    with open(handle, "rb") as stream:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return
        with open(target, "wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
            os.fchmod(copy.fileno(), stat.S_IMODE(facts.st_mode) & 0o777)


def _copy_files(target: str) -> None:
    for path in FILES:
        there = os.path.join(target, "files", path.lstrip("/"))
        if os.path.isdir(path):
            _copy_tree(path, there)
        elif os.path.isfile(path):
            os.makedirs(os.path.dirname(there), 0o700, exist_ok=True)
            _copy_file(path, there)


def _ids_of(directory: str) -> dict[str, object]:
    facts = os.stat(directory)
    try:
        name = pwd.getpwuid(facts.st_uid).pw_name
    except KeyError:
        name = ""
    return {"name": name, "uid": facts.st_uid, "gid": facts.st_gid}


def _jobs() -> Manifest:
    """Jobs in the queue and the id of the next one, as far as slurmctld answers."""
    try:
        jobs = slurm_client.jobs("%A|%T|%u|%i", "--all", "--array", limit_s=_ANSWER_S)
    except slurm_client.NoAnswerError:
        return {"jobs": None, "next_job_id": None}
    listed = [{"id": int(number), "state": state, "user": user, "name": shown} for number, state, user, shown in jobs]
    settings = slurm_client.ask(slurm_client.CONFIG, _ANSWER_S)
    following = slurm_output.config(settings.output).get("NEXT_JOB_ID", "") if settings.ok else ""
    return {"jobs": listed, "next_job_id": slurm_output.whole(following)}


def dump(database: str, cluster: str, target: str) -> dict[str, object]:
    """Dump while slurmdbd works: one transaction sees one moment. Returns its name and how many rows there were."""
    _require_space(database, os.path.dirname(target))
    before = count_rows(database, cluster)
    # without routines: slurmdbd makes its own at each start, and an owner from before may not be one here
    options = ["--single-transaction", "--quick", "--no-tablespaces", "--skip-dump-date"]
    words = database_clients.client("mariadb-dump", *options, database)
    with open(target, "wb") as stream:
        os.fchmod(stream.fileno(), 0o600)
        try:
            ended = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.PIPE, check=False, timeout=DATABASE_S
            )
        except subprocess.TimeoutExpired as error:
            raise BackupError(f"mariadb-dump did not end within {DATABASE_S // 3600} hours") from error
    if ended.returncode:
        reason = ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise BackupError("mariadb-dump: " + reason[-1])
    version = sql("SELECT VERSION();")
    return {"name": database, "server": version.strip(), "rows": [before, count_rows(database, cluster)]}


def _require_space(database: str, directory: str) -> None:
    size = int(of_tables("COALESCE(SUM(data_length), 0)", database))
    free = shutil.disk_usage(directory).free
    if size > free:
        raise BackupError(f"{directory}: {format_size(free)} are free, the database has {format_size(size)}")


def of_tables(what: str, database: str) -> str:
    """A figure about all tables of a database; its name is one that deploy has checked."""
    where = "FROM information_schema.tables WHERE table_schema"
    return sql(f"SELECT {what} {where} = '{database}';").strip()


def count_rows(database: str, cluster: str, *options: str) -> dict[str, int]:
    """Rows of the tables that a restore is compared by."""
    tables = [name.format(cluster.lower()) for name in ROWS_OF]
    queries = " UNION ALL ".join(
        f"SELECT '{table}', COUNT(*) FROM `{database}`.`{table}`"  # noqa: S608 (names that deploy has checked)
        for table in tables
    )
    rows = [line.split("\t") for line in sql(queries + ";", *options, limit_s=DATABASE_S).splitlines()]
    return {name: int(count) for name, count in rows}


def sql(statement: str, *options: str, limit_s: float = _ANSWER_S) -> str:
    """The database server's answer."""
    words = database_clients.client("mariadb", *options, "--batch", "--skip-column-names")
    answer = command.run(words, limit_s, stdin=statement)
    if not answer.ok:
        raise BackupError("MariaDB: " + answer.failure)
    return answer.output


def _opened(path: str, _flags: int) -> int:
    return os.open(path, _READ)


def hashes(directory: str) -> Iterator[tuple[str, str]]:
    """(path in the set, SHA-256) of each file, sorted; a BackupError where there is a link or a special file."""
    paths: list[str] = []
    for path, directories, names in os.walk(directory):
        paths += [os.path.join(path, name) for name in names]
        for entry in (os.path.join(path, name) for name in (*directories, *names)):
            mode = os.lstat(entry).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise BackupError(f"{entry} is not a plain file or directory")
    for path in sorted(paths):
        result = hashlib.sha256()
        with open(path, "rb", opener=_opened) as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                result.update(block)
        yield os.path.relpath(path, directory), result.hexdigest()
