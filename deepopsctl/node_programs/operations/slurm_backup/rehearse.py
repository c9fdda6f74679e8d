"""Restores a set into a throw-away Slurm on this host, and compares what it has with what the set says.

The database server, slurmdbd and slurmctld run in network, mount and process namespaces of their own: the copy can't
reach a node, the real daemons don't see it, and all of it ends with this program.

A set may have been changed by any host that can write the repository. So it is data: Slurm's configuration is this
host's own, with the nodes and partitions of the set, and the daemons run without rights.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from ..._shared import command, database as database_clients, slurm_client
from ..._shared.waiting import wait_until
from . import ACCOUNTING, DUMP, MONITORING, STATE, BackupError, monitoring, unprivileged
from .collect import DATABASE_S, count_rows, sql
from .dump import import_dump
from .repository import Repository
from .restore import choose, fetch_one, install_state, read_manifest

# not below a directory that only root may enter
_PLACE = "/var/tmp"  # noqa: S108 (mkdtemp in it)
_START_S, _PAUSE_S, _ANSWER_S = 120.0, 0.5, 30
_STORAGE = ("StorageType", "StorageHost", "StorageUser", "StoragePass", "StorageLoc", "StoragePort")
_LOCAL = ("LogFile", "PidFile", "DbdHost", "DbdAddr", "DbdBackupHost", "ArchiveScript")
_CONFIGURATION = "/etc/slurm"
# what a set's slurm.conf says of nodes and partitions, none of which names a program; its other lines stay unread
_OF_NODES = re.compile(
    r"(?:NodeName|NodeSet|DownNodes|PartitionName|GresTypes|SelectType|SelectTypeParameters|MaxArraySize|MaxJobCount)\s*=",
    re.IGNORECASE,
)
# of this host's own configuration: nothing of the copy's is started
_NO_PROGRAM = (
    "PrologSlurmctld", "EpilogSlurmctld", "MailProg", "HealthCheckProgram", "RebootProgram", "ResumeProgram",
    "SuspendProgram", "ResumeFailProgram", "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg", "UnkillableStepProgram",
)  # fmt: skip

Result = dict[str, Any]


def rehearse(config: Mapping[str, Any], repository: Repository, asked: str) -> Result:
    """Fetch a set, start it, and say what it has. Raises BackupError where it can't be restored."""
    snapshots = repository.snapshots()
    chosen = choose(snapshots, asked, config["parts"])
    with tempfile.TemporaryDirectory(prefix="deepops-backup-", dir=_PLACE) as place:
        # MariaDB and Slurm have users of their own; what was saved is root's alone
        os.chmod(place, 0o711)  # noqa: S103 (others enter it, and list nothing)
        private = os.path.join(place, "sets")
        os.mkdir(private, 0o700)
        sets = {part: fetch_one(repository, snapshot, private) for part, snapshot in chosen.items()}
        # who reads what monitoring saved enters it, and each set is its reader's
        os.chmod(private, 0o711)  # noqa: S103 (as above)
        # a set that is asked for may be whole where others are not
        if not asked:
            repository.check()
        result = monitoring.examine(sets[MONITORING]) if MONITORING in sets else _in_namespaces(config, place, sets)
    snapshot = {part: entry.id for part, entry in chosen.items()}
    return {"schema": 1, "snapshots": snapshot, "time": max(entry.time for entry in chosen.values()), **result}


def _in_namespaces(config: Mapping[str, Any], place: str, sets: Mapping[str, str]) -> Result:
    plan = {
        "place": place, "sets": sets, "cluster": config["cluster"], "database": config["database"],
        "state_directory": config["state_directory"], "addresses": _addresses(),
    }  # fmt: skip
    words = ["unshare", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    limit_s = DATABASE_S + _START_S * 4
    ended = command.run([*words, sys.executable, "-IB", "-c", _start_code()], limit_s, stdin=json.dumps(plan))
    lines = ended.output.splitlines()
    if not ended.ok or not lines:
        raise BackupError(f"the restored copy does not work: {ended.errors.strip()[-600:] or ended.failure}")
    result: Result = json.loads(lines[-1])
    return result


def _start_code() -> str:
    """This module's `inside` again, in the namespaces."""
    library = str(Path(os.path.abspath(__file__)).parents[3])
    return f"import sys; sys.path.insert(0, {library!r}); from {__name__} import inside; inside()"


def _addresses() -> list[str]:
    """All addresses of this host: names in slurm.conf lead to them."""
    shown = command.run(["ip", "-json", "address"], _ANSWER_S)
    entries = json.loads(shown.output) if shown.ok else []
    infos = [info for entry in entries for info in entry.get("addr_info", []) if entry.get("ifname") != "lo"]
    return [
        f"{info['local']}/{32 if info['family'] == 'inet' else 128}" for info in infos if info.get("scope") == "global"
    ]


def inside() -> None:
    """Start the copy in the namespaces that this process is in, and print what it has as JSON."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    plan = json.load(sys.stdin)
    place, sets = plan["place"], plan["sets"]
    try:
        for words in (
            ["ip", "link", "set", "lo", "up"],
            *(["ip", "address", "add", each, "dev", "lo"] for each in plan["addresses"]),
        ):
            command.require(words, _ANSWER_S)
        command.require(["mount", "--make-rprivate", "/"], _ANSWER_S)
        result: Result = {}
        if ACCOUNTING in sets:
            result["rows"] = _accounting(place, sets[ACCOUNTING], plan["database"], plan["cluster"])
        if STATE in sets:
            result["jobs"] = _state(place, sets[STATE], plan["state_directory"], with_accounting=ACCOUNTING in sets)
    except (BackupError, command.CommandError, OSError) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(result) + "\n")


def _accounting(place: str, set_directory: str, database: str, cluster: str) -> dict[str, int]:
    """MariaDB with the dump, and slurmdbd on it."""
    manifest = read_manifest(set_directory)
    data, sockets = os.path.join(place, "mysql"), os.path.join(place, "sockets")
    user = _server_user()
    for directory in (data, sockets):
        os.mkdir(directory, 0o755)
        shutil.chown(directory, user)
    os.makedirs("/run/mysqld", exist_ok=True)
    _bind(sockets, "/run/mysqld")
    if database_clients.is_elsewhere():
        # root's login here is that of the copy
        _bind("/dev/null", database_clients.LOGIN)
    command.require(
        ["mariadb-install-db", "--no-defaults", "--user=" + user, "--datadir=" + data, "--skip-test-db"], _START_S
    )
    server = ["mariadbd", "--no-defaults", "--user=" + user, "--datadir=" + data, "--skip-networking"]
    server += [
        "--socket=/run/mysqld/mysqld.sock",
        "--loose-innodb-snapshot-isolation=OFF",
        "--innodb-lock-wait-timeout=900",
        "--local-infile=OFF",
        "--secure-file-priv=" + data,
    ]
    _start(place, server)
    _until(lambda: command.run(["mariadb", "-e", "SELECT 1"], _ANSWER_S).ok, "mariadbd", place)
    password = secrets.token_hex(16)
    sql(
        f"CREATE DATABASE `{database}`; CREATE OR REPLACE USER 'slurm'@'localhost' IDENTIFIED BY '{password}';"
        f"GRANT ALL ON `{database}`.* TO 'slurm'@'localhost';"
    )
    import_dump(os.path.join(set_directory, DUMP), database)
    rows = count_rows(database, cluster)
    least, most = manifest["database"]["rows"]
    wrong = sorted(name for name, count in rows.items() if not least.get(name, 0) <= count <= most.get(name, count))
    if wrong:
        raise BackupError("the database has another number of rows than when it was saved: " + ", ".join(wrong))
    configuration = _configure(place)
    storage = {
        "StorageType": "accounting_storage/mysql", "StorageHost": "localhost", "StorageUser": "slurm",
        "StoragePass": password, "StorageLoc": database, "DbdHost": os.uname().nodename,
        "LogFile": os.path.join(place, "run", "slurmdbd.log"), "PidFile": os.path.join(place, "run", "slurmdbd.pid"),
        "SlurmUser": _slurm_user(),
    }  # fmt: skip
    _write_slurmdbd_conf(os.path.join(configuration, "slurmdbd.conf"), storage)
    _ensure_slurm_conf(configuration, cluster)
    _start(place, [*unprivileged.words_of(_slurm_user()), "/usr/sbin/slurmdbd", "-D"])
    _until(lambda: cluster in _output(slurm_client.CLUSTERS).split(), "slurmdbd", place)
    return rows


def _server_user() -> str:
    """MariaDB's own user, or Slurm's where the server's programs are there alone."""
    try:
        return pwd.getpwnam("mysql").pw_name
    except KeyError:
        return _slurm_user()


def _state(place: str, set_directory: str, state_directory: str, *, with_accounting: bool) -> int:
    """slurmctld on the state; how many jobs it has."""
    manifest = read_manifest(set_directory)
    if not with_accounting:
        _configure(place)
    copy = os.path.join(place, "state")
    user = pwd.getpwnam(_slurm_user())
    install_state(os.path.join(set_directory, STATE), copy, user.pw_uid, user.pw_gid)
    os.makedirs(state_directory, exist_ok=True)
    _bind(copy, state_directory)
    _write_slurm_conf(os.path.join(_CONFIGURATION, "slurm.conf"), set_directory, place)
    _start(place, [*unprivileged.words_of(_slurm_user()), "/usr/sbin/slurmctld", "-D"])
    _until(lambda: "UP" in _output(slurm_client.PING), "slurmctld", place)
    there = {int(word) for word in _output(slurm_client.squeue("%A", "--all", "--array")).split()}
    missing = [job["id"] for job in manifest["jobs"] or [] if job["id"] not in there and job["state"] != "COMPLETING"]
    # a job that ended while the set was made is in the one and not in the other
    if missing and not manifest["state_complete"]:
        missing = missing[len(manifest["jobs"]) // 20 + 1 :]
    if missing:
        raise BackupError(f"slurmctld has {len(there)} of the {len(manifest['jobs'])} jobs")
    return len(there)


def _write_slurm_conf(path: str, set_directory: str, place: str) -> None:
    """This host's settings with the set's nodes; the copy's log and pid file are its own."""
    own = {
        "SlurmctldLogFile": os.path.join(place, "run", "slurmctld.log"),
        "SlurmctldPidFile": os.path.join(place, "run", "slurmctld.pid"),
        "SlurmUser": _slurm_user(),
    }
    dropped = {key.lower() for key in (*own, *_NO_PROGRAM)}
    lines = [line for line in _lines(path) if line.split("=")[0].strip().lower() not in dropped]
    saved = nodes_of(_lines(os.path.join(set_directory, "files", "etc", "slurm", "slurm.conf")))
    if saved:
        lines = [line for line in lines if not _OF_NODES.match(line.lstrip())]
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines([*lines, *saved, *(f"{key}={value}\n" for key, value in own.items())])


def nodes_of(lines: Iterable[str]) -> list[str]:
    """The lines about nodes and partitions, each whole: Slurm continues with the next line after a `\\`."""
    joined = "".join(lines).replace("\\\n", " ").splitlines()
    return [line.strip() + "\n" for line in joined if _OF_NODES.match(line.lstrip())]


def _write_slurmdbd_conf(path: str, storage: Mapping[str, str]) -> None:
    try:
        with open(path, encoding="utf-8") as stream:
            lines = stream.readlines()
    except FileNotFoundError:
        lines = ["AuthType=auth/munge\n"]
    changed = {key.lower() for key in (*_STORAGE, *_LOCAL, "SlurmUser")}
    kept = [line for line in lines if line.split("=")[0].strip().lower() not in changed]
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines([*kept, *(f"{key}={value}\n" for key, value in storage.items())])
    os.chmod(path, 0o600)
    shutil.chown(path, _slurm_user())


def _ensure_slurm_conf(configuration: str, cluster: str) -> None:
    """Commands need a slurm.conf, and a host of slurmdbd alone has none."""
    path, host = os.path.join(configuration, "slurm.conf"), os.uname().nodename
    if os.path.exists(path):
        return
    lines = [
        "ClusterName=" + cluster, "SlurmctldHost=" + host, "SlurmUser=slurm",
        "AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=" + host,
    ]  # fmt: skip
    for line in _lines(os.path.join(configuration, "slurmdbd.conf")):
        key, _, value = line.partition("=")
        if key.strip().lower() == "dbdport":
            lines.append("AccountingStoragePort=" + value.strip())
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(line + "\n" for line in lines)


def _slurm_user() -> str:
    for line in _lines(os.path.join(_CONFIGURATION, "slurm.conf")):
        match = re.match(r"\s*SlurmUser\s*=\s*([A-Za-z0-9_.-]+)", line, re.IGNORECASE)
        if match and match[1] not in ("root", "0"):
            return match[1]
    return "slurm"


def _configure(place: str) -> str:
    """A copy of this host's configuration in its place, which the daemons' user may read; and a directory for logs."""
    configuration, logs, user = os.path.join(place, "slurm"), os.path.join(place, "run"), _slurm_user()
    if os.path.isdir(_CONFIGURATION):
        shutil.copytree(_CONFIGURATION, configuration, ignore_dangling_symlinks=True)
    else:
        os.mkdir(configuration)
    for path, _directories, names in os.walk(configuration):
        os.chmod(path, 0o755)  # noqa: S103 (as /etc/slurm has it)
        for name in names:
            shutil.chown(os.path.join(path, name), user)
    os.makedirs(_CONFIGURATION, exist_ok=True)
    _bind(configuration, _CONFIGURATION)
    os.mkdir(logs, 0o755)
    shutil.chown(logs, user)
    return configuration


def _lines(path: str) -> Iterable[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readlines()
    except OSError:
        return []


def _bind(source: str, target: str) -> None:
    command.require(["mount", "--bind", source, target], _ANSWER_S)


def _output(words: Sequence[str]) -> str:
    return slurm_client.ask([*unprivileged.words_of(_slurm_user()), *words], _ANSWER_S).output


def _start(place: str, words: Sequence[str]) -> None:
    name = next(os.path.basename(word) for word in words if not word.startswith("-") and word != "setpriv")
    with open(os.path.join(place, name + ".out"), "wb") as output:
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _until(works: Callable[[], bool], name: str, place: str) -> None:
    if not wait_until(works, _START_S, _PAUSE_S):
        paths = (os.path.join(place, name + ".out"), os.path.join(place, "run", name + ".log"))
        lines = [line.strip() for path in paths for line in _lines(path)]
        raise BackupError(f"{name} of the copy does not answer: {'; '.join(lines[-3:])}")
