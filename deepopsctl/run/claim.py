"""Claim of the cluster on the first controller, so that one control machine works on a cluster at a time.

The controller decides (deepopsctl/node_programs/operations/cluster_claim), in the first task of a run that has work to
do.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import DeepOpsError
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.people import People
from deepopsctl.run.events import HostResult, Status
from deepopsctl.run.lock import ClusterBusyError, Holder, is_held, token_of
from deepopsctl.text.answers import Fields

PLAYBOOK = "operate/cluster/claim"
# how far back in a git history to look, and for how long
VERSIONS, GIT_S = 500, 10
# of a cluster directory's runs/: the hash of the cluster.yml that the cluster ran when it was last seen from here
_SEEN = "applied"
TASK, RELEASE = "Claim the cluster for this run", "Release the cluster"


class Named(Protocol):
    """A part of cluster.yml."""

    @property
    def name(self) -> str:
        """How messages call it."""


class OutdatedError(DeepOpsError):
    """A newer cluster.yml is deployed, and this one would undo it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The first controller's answer to a claim."""

    state: str
    refused: str
    message: str
    hint: str
    holder: Mapping[str, object]
    warnings: tuple[str, ...]
    components: tuple[str, ...]

    def raise_if_refused(self) -> None:
        """Raise if this run must not continue."""
        if self.refused:
            raise (ClusterBusyError if self.refused == "busy" else OutdatedError)(self.message, self.hint)


def parse_answer(data: Mapping[str, object]) -> Answer | None:
    """The answer in a result of the node program cluster_claim; None in results of others."""
    return Fields.of(data["claim"]).fill(Answer) if isinstance(data.get("claim"), Mapping) else None


def result_of_node(event: HostResult) -> HostResult:
    """A claim's result for the node that delegated it: an unreachable controller is not a failure of the node."""
    if event.task.rpartition(" : ")[2] not in (TASK, RELEASE) or event.status is not Status.UNREACHABLE:
        return event
    return replace(event, status=Status.IGNORED)


def claim(directory: ClusterDir, cluster: Cluster, command: str, options: Mapping[str, object]) -> dict[str, object]:
    """The variable `deepops_claim` of a run."""
    holder = Holder.me(f"deepopsctl {command.replace('node-', 'node ', 1)}")
    directory_path = str(directory.path)
    return {
        "controller": cluster.controllers[0].name,
        "id": _hash(f"{_control_host_id()} {directory_path}"),
        "machine": _control_host_id(),
        "token": token_of(directory.runs),
        "directory": directory_path,
        "user": holder.user,
        "host": holder.host,
        "pid": holder.pid,
        "command": holder.command,
        "since": holder.since,
        "hash": _version(directory),
        "seen": [_first_line(directory.runs / _SEEN), *_versions(directory)],
        "parts": pack(_parts(cluster)),
        "dead": [],
        "break_lock": False,
        "replace_newer": False,
        **options,
    }


def record_applied(directory: ClusterDir) -> None:
    """Record that this cluster.yml and people.yml are deployed: later edits of them are known to be newer."""
    write_atomic(directory.runs / _SEEN, _version(directory) + "\n", 0o600)


def pack(parts: Mapping[str, str]) -> str:
    """The parts of a cluster.yml, compressed because of clusters with 10,000 nodes."""
    return base64.b64encode(zlib.compress(json.dumps(dict(parts)).encode())).decode()


def died_here(holder: Mapping[str, object]) -> bool:
    """Whether the holder of the lock was a run on this machine that has died."""
    if holder.get("machine") != _control_host_id():
        return False
    runs = Path(str(holder.get("directory"))) / "runs"
    try:
        return not is_held(runs)
    except OSError:
        # another user's directory, or one that is gone
        return not Path("/proc", str(holder.get("pid"))).exists()


def _control_host_id() -> str:
    """An id of this control machine; containers may share all but their process namespace."""
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


def _parts(cluster: Cluster) -> dict[str, str]:
    """The parts that an older cluster.yml or people.yml could lack or revert, each with a short hash of its values."""
    policy, people = cluster.policy, cluster.people or People()
    groups: tuple[tuple[str, tuple[Named, ...]], ...] = (
        ("node", cluster.nodes), ("partition", cluster.partitions), ("storage", cluster.storage),
        ("QOS", policy.qos), ("account", policy.accounts), ("group", people.groups), ("person", people.people),
    )  # fmt: skip
    return {f"{type_name} {part.name}": _hash(repr(part))[:8] for type_name, parts in groups for part in parts}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _version(directory: ClusterDir) -> str:
    """What identifies cluster.yml and people.yml as they are now."""
    return _identify(_blob(directory.spec), _blob(directory.people))


def _identify(spec: str, people: str) -> str:
    """What identifies two blobs; without a people.yml that of cluster.yml alone."""
    return _hash(f"{spec} {people}") if people else spec


def _blob(path: Path) -> str:
    """The git blob hash of a file, to be compared with its history; '' where there is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _versions(directory: ClusterDir) -> list[str]:
    """The versions in the git history of the directory, newest first; none outside a repository."""
    names = (directory.spec.name, directory.people.name)
    words = ["git", "log", f"--max-count={VERSIONS}", "--format=%x01", "--raw", "--no-abbrev", "--no-renames"]
    try:
        done = subprocess.run(
            [*words, "--", *names], cwd=directory.path, capture_output=True, text=True, timeout=GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []
    commits = [_changes(commit.splitlines()) for commit in done.stdout.split("\1")]
    # a file is after a commit what the next later change found there
    files = {name: next((new for changes in commits for path, _, new in changes if path == name), "") for name in names}
    versions = [tuple(files.values())]
    for changes in commits:
        files |= {path: old for path, old, _ in changes}
        versions.append(tuple(files.values()))
    return list(dict.fromkeys(_identify(spec, people) for spec, people in versions if spec))


def _changes(lines: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, old and new blob of each file that a commit changed; '' for no file."""
    # `:100644 100644 OLD NEW M	hpc/cluster.yml`
    rows = [line.split("\t", 1) for line in lines if line.startswith(":")]
    changes = [(PurePosixPath(path).name, *facts.split()[2:4]) for facts, path in rows]
    return [(name, old if old.strip("0") else "", new if new.strip("0") else "") for name, old, new in changes]
