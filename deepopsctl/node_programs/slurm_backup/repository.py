"""A restic repository: encrypted, at a directory or any address that restic knows.

Release 0.14 (Debian 12) has neither its own exit codes for "no repository" and "locked" nor `--stdin-from-command`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, List, Mapping, Sequence

from .._shared import command
from . import BackupError

CACHE = "/var/cache/deepopsctl/restic"
TAG = "deepopsctl"
_MESSAGE_LIMIT = 400
# another host prunes, or verifies: a matter of minutes
_LOCKED = "repository is already locked"
LOCKED_S, PAUSE_S = 1800.0, 10.0
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NO_REPOSITORY = ("unable to open config file", "Is there a repository at the following location")


@dataclass(frozen=True)
class Snapshot:
    """One set: the identification that restic prints, when (ISO 8601), of which host, and the parts it has."""

    id: str
    time: str
    host: str
    parts: List[str]
    root: str

    @property
    def instant(self) -> float:
        """The time in seconds: hosts may have different time zones, and winter's hours repeat summer's."""
        match = _TIME.fullmatch(self.time)
        if match is None:
            raise BackupError("snapshot {} has no time: {}".format(self.id, self.time))
        zone = "+00:00" if match[3] == "Z" else match[3]
        return datetime.fromisoformat(match[1] + zone).timestamp() + float(match[2] or 0)

    def as_object(self) -> Dict[str, object]:
        """For a result in JSON."""
        return {"id": self.id, "time": self.time, "host": self.host, "parts": self.parts}


class Repository:
    """What restic does with a repository; each method raises BackupError with restic's last words."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._cluster = str(config["cluster"])
        # the environment of a process is its owner's alone, an argument is everybody's
        self._environment = command.environment(
            RESTIC_REPOSITORY=str(config["repository"]),
            RESTIC_PASSWORD=str(config["password"]),
            RESTIC_CACHE_DIR=CACHE,
            HOME="/root",
            **{str(name): str(value) for name, value in config.get("environment", {}).items()},
        )

    def prepare(self) -> None:
        """Create the repository where there is none, and remove locks of processes that have ended."""
        answer = self._run(["cat", "config"])
        if not answer.ok and any(words in answer.message for words in _NO_REPOSITORY):
            # the host of slurmdbd may have made it in the same moment
            if not self._run(["init"]).ok:
                self._require(["cat", "config"])
        elif not answer.ok:
            raise BackupError(_words(answer))
        self._run(["unlock"])

    def save(self, directory: str, host: str, parts: Sequence[str]) -> str:
        """Store a directory; the new snapshot's id. A file that could not be read is a failure, too."""
        tags = ",".join([TAG, "cluster=" + self._cluster, *("part=" + part for part in parts)])
        output = self._require(["backup", "--json", "--host", host, "--tag", tags, directory])
        for line in reversed(output.splitlines()):
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if message.get("message_type") == "summary":
                return str(message["snapshot_id"])
        raise BackupError("restic saved no snapshot")

    def snapshots(self) -> List[Snapshot]:
        """This cluster's, the newest first."""
        output = self._require(["snapshots", "--json", "--tag", ",".join([TAG, "cluster=" + self._cluster])])
        entries = json.loads(output or "[]") or []
        snapshots = [
            Snapshot(
                entry["short_id"],
                entry["time"],
                entry.get("hostname", ""),
                [tag[len("part=") :] for tag in entry.get("tags") or [] if tag.startswith("part=")],
                os.path.normpath("/" + entry["paths"][0].lstrip("/")),
            )
            for entry in entries
        ]
        return sorted(snapshots, key=lambda snapshot: snapshot.instant, reverse=True)

    def hash_of(self, snapshot: str, path: str) -> str:
        """SHA-256 of a file in a snapshot, read back whole from the repository."""
        process = subprocess.Popen(
            ["restic", "dump", snapshot, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )
        result = hashlib.sha256()
        if process.stdout is not None:
            for block in iter(lambda: process.stdout.read(1 << 20) if process.stdout else b"", b""):
                result.update(block)
            process.stdout.close()
        if process.wait():
            raise BackupError("{} can't be read back".format(path))
        return result.hexdigest()

    def size_of(self, snapshot: str) -> int:
        """How many bytes a snapshot takes once it is restored."""
        return int(json.loads(self._require(["stats", "--json", "--mode", "restore-size", snapshot]))["total_size"])

    def restore(self, snapshot: Snapshot, target: str) -> None:
        """Write all files of a snapshot below a directory; one that has anything but plain files is refused before."""
        self._require_plain(snapshot)
        self._require(["restore", snapshot.id, "--target", target])

    def _require_plain(self, snapshot: Snapshot) -> None:
        """A link of a set would lead to, or be written through to, whatever it names here."""
        seen = set()
        for line in self._require(["ls", "--json", snapshot.id]).splitlines():
            entry = json.loads(line)
            if entry.get("struct_type") != "node":
                continue
            path = str(entry["path"])
            is_inside = (path + "/").startswith(snapshot.root + "/") or (snapshot.root + "/").startswith(path + "/")
            if entry["type"] not in ("file", "dir") or path in seen or not is_inside or ".." in path.split("/"):
                text = "snapshot {} has {}, which is no plain file or directory of a set: nothing of it is restored"
                raise BackupError(text.format(snapshot.id, ascii(path)))
            seen.add(path)

    def forget(self, host: str, parts: Sequence[str], keep: Mapping[str, int], *, prune: bool) -> None:
        """Drop sets of a host that are older than a site keeps them; `prune` frees their space.

        A host has at most two kinds of them, which don't share their first part.
        """
        rules = [word for name, count in sorted(keep.items()) for word in ("--keep-" + name, str(count))]
        if rules:
            tags = ",".join([TAG, "cluster=" + self._cluster, "part=" + parts[0]])
            more = ["--prune"] if prune else []
            self._require(["forget", "--host", host, "--tag", tags, "--group-by", "host", *rules, *more])

    def check(self) -> None:
        """Compare the repository's structure with itself."""
        self._require(["check"])

    def _run(self, arguments: Sequence[str]) -> command.Result:
        os.makedirs(CACHE, 0o700, exist_ok=True)
        deadline = time.monotonic() + LOCKED_S
        while True:
            answer = command.run(["restic", *arguments], env=self._environment)
            # restic's own --retry-lock came with 0.16
            if answer.ok or _LOCKED not in answer.message or time.monotonic() > deadline:
                return answer
            time.sleep(PAUSE_S)

    def _require(self, arguments: Sequence[str]) -> str:
        answer = self._run(arguments)
        if not answer.ok:
            raise BackupError(_words(answer))
        return answer.output


def _words(answer: command.Result) -> str:
    """What restic complains of: its last line says more than its first."""
    if answer.status == command.MISSING:
        return answer.message
    lines = [line for line in answer.message.splitlines() if line.strip() and not line.startswith("{")]
    return "restic: " + (lines[-1] if lines else "exits {}".format(answer.status))[:_MESSAGE_LIMIT]
