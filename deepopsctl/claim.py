"""What a run tells the first controller of itself, so that one control machine works on a cluster at a time.

The answers are given there (plugins/module_utils/control_claim.py), in the first call of a run that has work to do.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import socket
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.clusterdir import ClusterDir
from deepopsctl.errors import DeepOpsError
from deepopsctl.lock import ClusterBusyError, Holder, ansible_lock, token_of
from deepopsctl.model import Cluster

PLAYBOOK = "operate/claim"
TASK = "Claim the cluster for this run"


class OutdatedError(DeepOpsError):
    """The cluster was made by a newer cluster.yml, and this one would undo it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the first controller said to a claim."""

    state: str
    refused: str
    message: str
    hint: str
    holder: Mapping[str, object]
    warnings: tuple[str, ...]
    components: tuple[str, ...]

    def raise_if_refused(self) -> None:
        """Raise where this run must not go on."""
        if self.refused:
            raise (ClusterBusyError if self.refused == "busy" else OutdatedError)(self.message, self.hint)


def parse_answer(data: Mapping[str, object]) -> Answer | None:
    """What cluster_claim returned under `deepops`; None where something else did."""
    found = data.get("claim")
    if not isinstance(found, Mapping):
        return None
    holder = found.get("holder")
    return Answer(
        state=str(found.get("state") or ""),
        refused=str(found.get("refused") or ""),
        message=str(found.get("message") or ""),
        hint=str(found.get("hint") or ""),
        holder=holder if isinstance(holder, Mapping) else {},
        warnings=_texts(found.get("warnings")),
        components=_texts(found.get("components")),
    )


def claim(directory: ClusterDir, cluster: Cluster, command: str, options: Mapping[str, object]) -> dict[str, object]:
    """The variable `deepops_claim` of a run."""
    me = Holder.me(f"deepopsctl {command}")
    place = str(directory.path)
    return {
        "controller": cluster.controllers[0].name,
        "id": _hash(f"{_machine()} {place}"),
        "machine": _machine(),
        "token": token_of(directory.runs),
        "directory": place,
        "user": me.user,
        "host": me.host,
        "pid": me.pid,
        "command": me.command,
        "since": me.since,
        "hash": _hash(directory.spec.read_bytes()),
        "names": pack(_names(cluster)),
        "dead": [],
        "break_lock": False,
        "replace_newer": False,
        **options,
    }


def pack(names: Iterable[str]) -> str:
    """Names as the controller unpacks them: those of 10,000 nodes would be long."""
    return base64.b64encode(zlib.compress(json.dumps(list(names)).encode())).decode()


def died_here(holder: Mapping[str, object]) -> bool:
    """Whether the holder of the lock was a run on this machine that is no more."""
    if holder.get("machine") != _machine():
        return False
    runs = Path(str(holder.get("directory"))) / "runs"
    try:
        return not any(_is_locked(path) for path in (runs / ".lock", ansible_lock(runs)))
    except OSError:
        # another user's directory, or one that is gone
        return not Path("/proc", str(holder.get("pid"))).exists()


def _is_locked(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _machine() -> str:
    """This control machine; containers may share all but the namespace of their processes."""
    parts = [socket.gethostname(), _first_line(Path("/etc/machine-id"))]
    try:
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        parts.append("")
    return _hash(" ".join(parts))


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return ""


def _names(cluster: Cluster) -> Iterator[str]:
    """What an older cluster.yml could lack."""
    yield from (f"node {node.name}" for node in cluster.nodes)
    yield from (f"partition {partition.name}" for partition in cluster.partitions)
    yield from (f"storage {mount.name}" for mount in cluster.storage)
    yield from (f"QOS {qos.name}" for qos in cluster.policy.qos)
    yield from (f"account {account.name}" for account in cluster.policy.accounts)


def _hash(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(entry) for entry in value) if isinstance(value, list) else ()
