"""Brings a set back: fetched and compared, the database filled, the state in place, and jobs compared at the end."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from ..._shared import atomic_file, command, hostlist, settings, slurm_client, slurm_output
from ..._shared.node_states import ON_NODES
from ..._shared.values import format_size
from ..._shared.waiting import wait_until
from . import ACCOUNTING, CURRENT, DUMP, MANIFEST, MONITORING, RESTORED, STATE, BackupError, monitoring
from .collect import DATABASE_S, Manifest, hashes, of_tables, sql
from .dump import import_dump
from .repository import Repository, Snapshot

_SLURMCTLD = "slurmctld.service"
_ANSWER_S = 60
# one that can't write its state is killed by systemd
_STOP_S = 300
_PAUSE_S = 2.0
# as the daemon names itself
_STEP = re.compile(rb"^slurmstepd: \[([0-9]+)\.")


def choose(snapshots: Sequence[Snapshot], asked: str, parts: Sequence[str]) -> dict[str, Snapshot]:
    """The snapshot for each part: the one asked for, else the newest.

    Where the parts are of two hosts, the database is the first that was saved after the state: it knows all jobs that
    the state has.
    """
    chosen: dict[str, Snapshot] = {}
    for part in parts:
        having = [snapshot for snapshot in snapshots if part in snapshot.parts]
        named = [snapshot for snapshot in having if snapshot.id == asked[:8]] if asked else []
        if part == ACCOUNTING and STATE in chosen and not named:
            state = chosen[STATE]
            later = [snapshot for snapshot in having if snapshot.instant >= state.instant]
            having = [state] if ACCOUNTING in state.parts else later[-1:] or having
        if not (named or having):
            raise BackupError(f"the repository has no snapshot with {part} of this cluster")
        chosen[part] = (named or having)[0]
    if asked and all(snapshot.id != asked[:8] for snapshot in chosen.values()):
        raise BackupError(f"the repository has no snapshot {asked} with what is missing here")
    return chosen


def fetch(config: Mapping[str, Any], asked: str, parts: Sequence[str]) -> dict[str, Any]:
    """Restore sets into a private directory and compare each file with its manifest; what they hold."""
    current = _current()
    is_asked = not asked or any(entry["snapshot"] == asked[:8] for entry in current.values())
    begun = {part for part, entry in current.items() if _is_done(part, entry, "begun")}
    # one that was cut off continues with its set: by now, a newer one is of what has been restored so far
    if begun and is_asked and begun <= {*parts} <= {*current}:
        current = {part: current[part] for part in parts}
        atomic_file.write_synced(CURRENT, json.dumps(current))
    elif begun:
        snapshots = " and ".join(sorted({current[part]["snapshot"] for part in begun}))
        raise BackupError(
            f"{' and '.join(sorted(begun))} of snapshot {snapshots} is half restored: finish that first, with the"
            " options it was begun with"
        )
    elif set(current) != {*parts} or not is_asked:
        repository = Repository(config)
        chosen = choose(repository.snapshots(), asked, parts)
        shutil.rmtree(RESTORED, ignore_errors=True)
        os.makedirs(RESTORED, 0o700)
        current = {}
        for part, snapshot in chosen.items():
            current[part] = {"snapshot": snapshot.id, "set": fetch_one(repository, snapshot, RESTORED)}
        atomic_file.write_synced(CURRENT, json.dumps(current))
    return {
        part: {"snapshot": entry["snapshot"], **_summary(read_manifest(entry["set"]))}
        for part, entry in current.items()
    }


def fetch_one(repository: Repository, snapshot: Snapshot, directory: str) -> str:
    """Restore a snapshot below a directory, and compare it with its manifest; the directory of the set."""
    try:
        return _fetch_one(repository, snapshot, directory)
    except BackupError as error:
        # the same place: a rerun fetches it again
        shutil.rmtree(os.path.join(directory, snapshot.id), ignore_errors=True)
        taken = snapshot.time[:16].replace("T", " ")
        raise BackupError(f"the set {snapshot.id} of {taken} can't be used: {error}") from error


def _fetch_one(repository: Repository, snapshot: Snapshot, directory: str) -> str:
    target = os.path.join(directory, snapshot.id)
    saved = target + snapshot.root
    if not os.path.isdir(saved):
        size, free = repository.size_of(snapshot.id), shutil.disk_usage(directory).free
        if size > free:
            needed = f"snapshot {snapshot.id} has {format_size(size)}"
            raise BackupError(f"{directory}: {format_size(free)} are free, {needed}")
        repository.restore(snapshot, target)
    manifest = read_manifest(saved)
    there = {path: digest for path, digest in hashes(saved) if path != MANIFEST}
    damaged = sorted(path for path in {*there, *manifest["files"]} if there.get(path) != manifest["files"].get(path))
    if damaged:
        raise BackupError(f"it is damaged, not what was saved: {', '.join(damaged[:5])}")
    return saved


def put_accounting(database: str) -> bool:
    """Fill the empty database; whether there was anything to do."""
    entry = _current()[ACCOUNTING]
    if _is_done(ACCOUNTING, entry):
        return False
    if of_tables("COUNT(*)", database) != "0":
        if not _is_done(ACCOUNTING, entry, "begun"):
            raise BackupError(
                f"the database {database} is not empty: nothing was changed. "
                "If the accounting is not lost, restore with --only state"
            )
        # an import that was cut off
        sql(f"DROP DATABASE `{database}`; CREATE DATABASE `{database}`;", limit_s=DATABASE_S)
    _mark(ACCOUNTING, entry, "begun")
    import_dump(os.path.join(entry["set"], DUMP), database)
    _mark(ACCOUNTING, entry)
    return True


def is_missing(directory: str, mount: str = "") -> bool:
    """Whether the state has to be put in place; a BackupError where another one is there, or nothing is mounted."""
    entry = _current()[STATE]
    if _is_done(STATE, entry):
        return False
    if mount and not os.path.ismount(mount):
        raise BackupError(f"nothing is mounted on {mount}: nothing was changed. `deepopsctl deploy storage` mounts it")
    if os.path.exists(os.path.join(directory, "clustername")) and not _is_done(STATE, entry, "begun"):
        raise BackupError(
            f"{directory} has a state of slurmctld already: nothing was changed. If only the accounting "
            "is lost, restore with "
            "--only accounting. If the state is, too, stop slurmctld and move the directory away"
        )
    return True


def stop_slurmctld() -> bool:
    """Stop slurmctld, also one that is about to start again; whether there was anything to do."""
    state = command.require(["systemctl", "show", "--property=ActiveState", "--value", _SLURMCTLD], _ANSWER_S).strip()
    if state in ("inactive", "failed"):
        return False
    command.require(["systemctl", "stop", _SLURMCTLD], _STOP_S)
    return True


def put_state(directory: str, user: str, living: Mapping[str, Any]) -> bool:
    """Put slurmctld's state in place before its first start; whether there was anything to do.

    `living` has the jobs that had steps on nodes meanwhile, and the nodes that did not say: slurmctld ends what it does
    not know as running, so it is kept here until the queue has been compared.
    """
    if not is_missing(directory):
        return False
    entry = _current()[STATE]
    if not os.path.exists(_living()):
        atomic_file.write_synced(_living(), json.dumps(living))
    _mark(STATE, entry, "begun")
    owner = pwd.getpwnam(user)
    install_state(os.path.join(entry["set"], STATE), directory, owner.pw_uid, owner.pw_gid)
    _mark(STATE, entry)
    return True


def install_state(source: str, directory: str, uid: int, gid: int) -> None:
    """Copy a state; all of it belongs to Slurm's user."""
    for path, _directories, names in os.walk(source):
        there = os.path.normpath(os.path.join(directory, os.path.relpath(path, source)))
        os.makedirs(there, 0o700, exist_ok=True)
        os.chown(there, uid, gid)
        for name in names:
            target = os.path.join(there, name)
            shutil.copyfile(os.path.join(path, name), target, follow_symlinks=False)
            os.chmod(target, os.lstat(os.path.join(path, name)).st_mode & 0o777)
            os.chown(target, uid, gid, follow_symlinks=False)


def put_monitoring(config: Mapping[str, Any], asked: str) -> dict[str, Any]:
    """Fetch what monitoring had, and put it back; what there was to do."""
    repository, directory = Repository(config), RESTORED + "-" + MONITORING
    snapshot = choose(repository.snapshots(), asked, [MONITORING])[MONITORING]
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory, 0o700)
    try:
        return monitoring.put_back(fetch_one(repository, snapshot, directory))
    finally:
        shutil.rmtree(directory)


def end() -> bool:
    """Remove the set, which has keys, once all hosts have compared what they restored; whether there was one."""
    there = os.path.isdir(RESTORED)
    if there:
        shutil.rmtree(RESTORED)
    return there


def forget() -> bool:
    """Remove what was fetched, unless a part of it was brought back; whether there was anything."""
    there = os.path.isdir(RESTORED) and not has_begun()
    if there:
        shutil.rmtree(RESTORED)
    return there


def has_begun() -> bool:
    """Whether a part of what was fetched was brought back."""
    return os.path.isdir(RESTORED) and any(name.endswith(".begun") for name in os.listdir(RESTORED))


def jobs_here(processes: str = "/proc") -> list[int]:
    """The jobs that have a step on this node: slurmctld's own look for lost jobs comes minutes later."""
    jobs: set[int] = set()
    for name in filter(str.isdigit, os.listdir(processes)):
        with contextlib.suppress(OSError):
            process = os.path.join(processes, name)
            path = os.path.join(process, "cmdline")
            # a user's process may have any name; it lies in its memory, where reading may take for ever
            if os.stat(path).st_uid == 0:
                jobs.update(_jobs_of(process, path))
    return sorted(jobs)


def _jobs_of(process: str, command_line: str) -> list[int]:
    """The job whose step it is, if any. The files of a program that has root's rights (sudo) are root's as well."""
    if not _is_started_by_root(process):
        return []
    with open(command_line, "rb") as stream:
        numbers = _STEP.findall(stream.read(64))
    return [] if numbers and _has_roots_rights(process) else [int(number) for number in numbers]


def _is_started_by_root(process: str) -> bool:
    path = os.path.join(process, "status")
    # missing where the process has ended meanwhile
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as stream:
        return bool(re.search(r"^Uid:\s*0\s", stream.read(), re.MULTILINE))
    return True


def _has_roots_rights(process: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return bool(os.stat(os.path.join(process, "exe")).st_mode & stat.S_ISUID)
    return False


def _living() -> str:
    return os.path.join(RESTORED, "living.json")


def _hold_started(ran: Mapping[int, object]) -> dict[str, list[dict[str, Any]]]:
    """Hold what waited when the set was made and has started since, or may have: it would start from the beginning.

    A task of an array that has started has another number than the set: where a job runs that the set does not have,
    arrays are held. Where a node did not answer, every job may have started there.
    """
    living = settings.load(_living()) if os.path.exists(_living()) else {}
    seen = {int(number) for jobs in living.get("jobs", {}).values() for number in jobs}
    waiting = _waiting()
    known = {*waiting, *ran, *_queue()}
    held: dict[str, list[dict[str, Any]]] = {"began": [], "unsure": []}
    for number, (user, is_array, is_held) in sorted(waiting.items()):
        if number in ran:
            # it is held with those that were lost
            continue
        if number in seen:
            how = "began"
        elif not is_held and (living.get("silent") or (is_array and seen - known)):
            how = "unsure"
        else:
            continue
        # one that an administrator holds stays so
        done = None if is_held else _scontrol("uhold", number)
        if done and not done.ok:
            raise BackupError(f"job {number}: {done.failure}")
        held[how].append({"id": number, "user": user})
    return held


def _waiting() -> dict[int, tuple[str, bool, bool]]:
    """Whose each waiting job is, whether it is an array, and whether a user holds it."""
    rows = _jobs("%F|%i|%Q|%u", "--states=PENDING")
    return {int(number): (user, "_" in job, priority == "0") for number, job, priority, user in rows}


def reconcile(timeout_s: float, jobs_on: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Compare the queue with the nodes once they have registered, while no partition starts jobs.

    A job that ran when the set was made and is on none of its nodes (`jobs_on`, of those that answered) was lost: it
    is held, and never starts again by itself. Slurm requeues no interactive job, and none with --no-requeue: `stuck`
    has those. One that ended meanwhile is reported by its node. Nothing where the state was not restored.
    One that waited and has started since is held as well (`began`), and one that may have (`unsure`).
    """
    if STATE not in _current():
        return {}
    manifest = read_manifest(_current()[STATE]["set"])
    ran = {job["id"]: job for job in manifest["jobs"] or [] if job["state"] in ON_NODES}
    silent = _wait_for_nodes(timeout_s)
    started = _hold_started(ran)
    held, refused = [], set()
    for number, (state, nodes) in _queue().items():
        if number not in ran:
            continue
        known = [jobs_on[name] for name in nodes if name in jobs_on]
        is_lost = len(known) == len(nodes) and not any(number in jobs for jobs in known)
        if state == "PENDING":
            done = _scontrol("uhold", number)
        elif state in ON_NODES and nodes and is_lost:
            done = _scontrol("requeuehold", number)
        else:
            continue
        if done.ok:
            held.append({"id": number, "user": ran[number]["user"]})
        elif state == "PENDING":
            raise BackupError(f"job {number}: {done.failure}")
        else:
            refused.add(number)
    queue = _queue()
    # one that ended in this moment is no more
    stuck = sorted(number for number in refused if queue.get(number, ("", []))[0] in ON_NODES)
    apart = {*(job["id"] for jobs in (held, *started.values()) for job in jobs), *stuck}
    now = [state for number, (state, _nodes) in queue.items() if number not in apart]
    return {
        "running": sum(state in ON_NODES for state in now),
        "pending": now.count("PENDING"),
        "held": held,
        "stuck": [{"id": number, "user": ran[number]["user"]} for number in stuck],
        "silent": silent,
        **started,
    }


def _jobs(columns: str, *options: str) -> list[list[str]]:
    try:
        return slurm_client.jobs(columns, "--all", *options, limit_s=_ANSWER_S)
    except slurm_client.NoAnswerError as error:
        raise BackupError(str(error)) from error


def _scontrol(action: str, number: int) -> command.Result:
    return slurm_client.ask(slurm_client.scontrol(action, str(number)), _ANSWER_S)


def _wait_for_nodes(timeout_s: float) -> list[str]:
    """Wait until all nodes have registered; those that have not."""

    def registered() -> dict[str, bool]:
        nodes = slurm_output.records(slurm_client.ask(slurm_client.show("node"), _ANSWER_S).output, "NodeName")
        # what slurmctld knows of them from the restored state is not a registration: that has a time
        return {name: node["SlurmdStartTime"] != "None" for name, node in nodes.items() if "SlurmdStartTime" in node}

    nodes = wait_until(registered, timeout_s, _PAUSE_S, lambda answer: bool(answer) and all(answer.values()))
    return sorted(name for name, has in nodes.items() if not has)


def _queue() -> dict[int, tuple[str, list[str]]]:
    """State and nodes of each job."""
    rows = _jobs("%A|%T|%N", "--array")
    return {int(number): (state, hostlist.expand(nodes) if nodes else []) for number, state, nodes in rows}


def read_manifest(directory: str) -> Manifest:
    """What a set says of itself."""
    try:
        with open(os.path.join(directory, MANIFEST), encoding="utf-8") as stream:
            manifest: Manifest = json.load(stream)
        _check(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"the snapshot has no readable manifest: {error}") from error
    return manifest


def _check(manifest: Manifest) -> None:
    """What a set says of itself is used as numbers and names only."""
    for name in ("finished", "next_job_id"):
        if manifest.get(name) is not None:
            manifest[name] = int(manifest[name])
    for job in manifest.get("jobs") or []:
        job.update(id=int(job["id"]), state=str(job["state"]), user=ascii(str(job["user"]))[1:-1])
    if not all(isinstance(digest, str) for digest in manifest.setdefault("files", {}).values()):
        raise ValueError("a file in it has no checksum")
    for rows in (manifest.get("database") or {"rows": []})["rows"]:
        rows.update({str(name): int(count) for name, count in rows.items()})


def _summary(manifest: Manifest) -> dict[str, Any]:
    jobs: list[dict[str, Any]] | None = manifest.get("jobs")
    running = [job["id"] for job in jobs or [] if job["state"] in ON_NODES]
    return {
        "cluster": manifest["cluster"], "host": manifest["host"], "finished": manifest["finished"],
        "slurm": manifest["slurm"], "next_job_id": manifest.get("next_job_id"),
        "components": manifest.get("components", []),
        "jobs": None if jobs is None else len(jobs), "running": running,
        "rows": (manifest.get("database") or {}).get("rows"),
    }  # fmt: skip


def _current() -> dict[str, dict[str, str]]:
    try:
        return settings.load(CURRENT)
    except settings.SettingsError:
        return {}


def _is_done(part: str, entry: Mapping[str, str], how: str = "done") -> bool:
    try:
        with open(os.path.join(RESTORED, f"{part}.{how}"), encoding="utf-8") as stream:
            return stream.read() == entry["snapshot"]
    except OSError:
        return False


def _mark(part: str, entry: Mapping[str, str], how: str = "done") -> None:
    atomic_file.write_synced(os.path.join(RESTORED, f"{part}.{how}"), entry["snapshot"])
