"""One control machine at a time, and none with an older cluster.yml: the record of that on the first controller.

`lock.json` says who works on the cluster now, `applied.json` which cluster.yml was applied last, and all those before.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._shared import atomic_file
from ..._shared.deployed import STATE

# a holder on another control machine can't be asked: this long after its last sign of life it counts as dead
STALE_S = 7200
# earlier hashes of cluster.yml, clones of one directory, and earlier values of one part, that are remembered
LINEAGE, CLONES, VALUES = 500, 100, 20
SHOWN = 8
# who asks, with which cluster.yml: deepopsctl/run/claim.py makes it
Claim = Mapping[str, Any]
Document = dict[str, Any]


class RefusedError(Exception):
    """This run must not continue; `reason` is `busy` or `outdated`."""

    def __init__(self, reason: str, message: str, hint: str, holder: Document | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.hint = hint
        self.holder = holder or {}


def _directory() -> str:
    return os.path.join(STATE, "cluster")


def _read(name: str) -> Document:
    try:
        with open(os.path.join(_directory(), name), "rb") as stream:
            document = json.loads(stream.read())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(name: str, document: Document) -> None:
    # a power cut leaves the old document or the new one
    atomic_file.write_synced(os.path.join(_directory(), name), json.dumps(document, sort_keys=True), 0o600)


@contextlib.contextmanager
def _exclusive_lock() -> Iterator[None]:
    """Hold the lock of the record: concurrent claims are handled one after the other."""
    os.makedirs(_directory(), mode=0o700, exist_ok=True)
    handle = os.open(os.path.join(_directory(), ".guard"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def unpack(text: str) -> dict[str, str]:
    """The parts that the control machine packed, with hashes of their values: `node gpu01`, `partition gpu`."""
    parts: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(text))) if text else {}
    return parts


def inspect(claim: Claim, now: float | None = None) -> tuple[list[RefusedError], list[str]]:
    """(refusals, warnings) that a run with this claim would meet; nothing is changed."""
    refusals: list[RefusedError] = []
    warning = ""
    try:
        warning = _overdue(claim, time.time() if now is None else now)
    except RefusedError as error:
        refusals.append(error)
    try:
        _successor(claim, _read("applied.json"))
    except RefusedError as error:
        refusals.append(error)
    return refusals, [warning] if warning else []


def acquire(claim: Claim, now: float | None = None) -> list[str]:
    """Make the cluster this run's, and its cluster.yml the one that is applied; returns warnings."""
    now = time.time() if now is None else now
    with _exclusive_lock():
        warning = _overdue(claim, now)
        applied = _successor(claim, _read("applied.json"))
        before = _read("lock.json")
        holder = {key: claim[key] for key in ("id", "token", "machine", "directory", "user", "host", "pid", "command")}
        since = before["since"] if before.get("token") == claim["token"] else claim["since"]
        _write("lock.json", dict(holder, since=since, last=now))
        _write("applied.json", applied)
    return [warning] if warning else []


def note_clone(claim: Claim) -> None:
    """Remember a clone that has the cluster.yml applied last: whatever it is edited to next follows that one."""
    with _exclusive_lock():
        applied = _read("applied.json")
        if (applied.get("tip") or {}).get("hash") == claim["hash"]:
            _write("applied.json", _successor(claim, applied))


def release(claim: Claim, components: Sequence[str], now: float | None = None) -> list[str]:
    """Release the cluster, and record what was deployed; returns warnings."""
    now = time.time() if now is None else now
    with _exclusive_lock():
        holder, applied = _read("lock.json"), _read("applied.json")
        if components:
            applied["components"] = dict(applied.get("components") or {}, **dict.fromkeys(components, now))
            _write("applied.json", applied)
        if holder.get("token") == claim["token"]:
            os.unlink(os.path.join(_directory(), "lock.json"))
            return []
    if holder and holder.get("id") != claim["id"]:
        return [f"{_holder_description(holder)} took the cluster over while this run was at work: run deploy again"]
    return []


def _refuse_to_mix(claim: Claim) -> None:
    """Raise where an upgrade is under way, and this run is not it: nodes have different releases meanwhile."""
    # an absolute path: below the directory of the others is only what is written here
    upgrade = _read(os.path.join(STATE, "upgrade", "slurm.json"))
    if upgrade and not claim["command"].startswith("deepopsctl upgrade"):
        old, new, since = map(upgrade.get, ("from", "to", "since"))
        raise RefusedError(
            "busy",
            f"an upgrade of Slurm from {old} to {new} is under way since {since}",
            f"`deepopsctl upgrade slurm --to {new}` continues from where it stopped",
        )


def _overdue(claim: Claim, now: float) -> str:
    """A warning where a dead holder is passed over; raises where one works."""
    _refuse_to_mix(claim)
    holder = _read("lock.json")
    if not holder.get("token") or holder.get("id") == claim["id"] or holder["token"] in claim["dead"]:
        return ""
    silent_s = max(now - float(holder.get("last") or 0), 0)
    if claim["break_lock"]:
        return f"the lock of {_holder_description(holder)} was broken"
    if silent_s > STALE_S:
        return f"the lock of {_holder_description(holder)} was passed over: no sign of it for {_duration(silent_s)}"
    raise RefusedError(
        "busy",
        f"another control machine works on this cluster: {_holder_description(holder)}; its last sign was "
        f"{_duration(silent_s)} ago",
        "wait until it has ended, or stop it there with Ctrl-C; if it has died, `deepopsctl deploy --break-lock`"
        f" continues (so does every run after {_duration(STALE_S)} without a sign of it)",
        holder,
    )


def _successor(claim: Claim, applied: Document) -> Document:
    """What is applied once this run has begun; raises where that would undo what another clone has applied."""
    tip, lineage = applied.get("tip") or {}, list(applied.get("lineage") or [])
    parts, former = unpack(claim["parts"]), dict(applied.get("former") or {})
    clones = [claim["id"]]
    if tip.get("hash") == claim["hash"]:
        clones = [*(known for known in tip.get("clones") or [] if known != claim["id"]), claim["id"]][-CLONES:]
    elif tip and not _follows(claim, tip) and not claim["replace_newer"]:
        _must_not_undo(tip, parts, former, is_older=claim["hash"] in lineage)
    made = {
        "hash": claim["hash"],
        "parts": parts,
        "clones": clones,
        **{key: claim[key] for key in ("since", "user", "host", "directory", "command")},
    }
    if tip.get("hash") == claim["hash"]:
        made = dict(tip, clones=clones)
    for name, value in (tip.get("parts") or {}).items():
        if parts.get(name) != value:
            others = [known for known in former.get(name, []) if known != value]
            former[name] = [*others[-VALUES:], value]
    lineage = [*(known for known in lineage if known != claim["hash"]), claim["hash"]]
    return dict(applied, tip=made, former=former, lineage=lineage[-LINEAGE:])


def _follows(claim: Claim, tip: Document) -> bool:
    """Whether this clone had what was applied last before it was edited."""
    return claim["id"] in (tip.get("clones") or []) or tip.get("hash") in claim["seen"]


def _must_not_undo(tip: Document, parts: Mapping[str, str], former: Document, *, is_older: bool) -> None:
    applied_parts = tip.get("parts") or {}
    lost = sorted(set(applied_parts) - set(parts))
    # one that the cluster had, and has not any more
    restored = sorted(
        name for name, value in parts.items() if name not in applied_parts and value in former.get(name, [])
    )
    changed = sorted(name for name in set(applied_parts) & set(parts) if parts[name] != applied_parts[name])
    reset = [name for name in changed if parts[name] in former.get(name, [])]
    if not (is_older or lost or restored or reset):
        return
    what = [f"would {verb} {_few(names)}" for verb, names in
            (("remove", lost), ("bring back", restored), ("undo changes of", reset)) if names]  # fmt: skip
    what = what or ["has the same nodes and partitions, with older values of other keys"]
    relation = "older than" if is_older else "not a successor of"
    user, host, directory, since = (tip.get(key, "?") for key in ("user", "host", "directory", "since"))
    applied = f"the one that {user} on {host} applied from {directory} at {since}"
    raise RefusedError(
        "outdated",
        f"cluster.yml here is {relation} {applied}: it {' and '.join(what)}",
        "bring it up to date (git pull, or copy that cluster.yml);"
        " `deepopsctl deploy --replace-newer` applies it as it is",
    )


def _holder_description(holder: Document) -> str:
    """`deepopsctl deploy, started by alice on admin1 (pid 4711, in /srv/hpc) at ...`."""
    keys = ("command", "user", "host", "pid", "directory", "since")
    command, user, host, pid, directory, since = (holder.get(key, "?") for key in keys)
    return f"{command}, started by {user} on {host} (pid {pid}, in {directory}) at {since}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _duration(seconds: float) -> str:
    for size, word in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {word}"
    return f"{int(seconds)} s"
