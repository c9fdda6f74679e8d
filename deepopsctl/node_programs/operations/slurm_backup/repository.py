"""A restic repository: encrypted, at a directory or any address that restic knows.

Release 0.14 (Debian 12) has neither its own exit codes for "no repository" and "locked" nor `--stdin-from-command`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..._shared import command
from ..._shared.waiting import wait_until
from . import BackupError

CACHE = "/var/cache/deepopsctl/restic"
TAG = "deepopsctl"
_MESSAGE_LIMIT = 400
# another host prunes, or verifies: a matter of minutes
_LOCKED = "repository is already locked"
LOCKED_S, PAUSE_S = 1800.0, 10.0
# restic tries for a quarter of an hour where nothing answers
OPEN_S = 120.0
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NO_REPOSITORY = ("unable to open config file", "Is there a repository at the following location")


@dataclass(frozen=True)
class Snapshot:
    """One set: the identification that restic prints, when (ISO 8601), of which host, and the parts it has."""

    id: str
    time: str
    host: str
    parts: list[str]
    root: str

    @property
    def instant(self) -> float:
        """The time in seconds: hosts may have different time zones, and winter's hours repeat summer's."""
        match = _TIME.fullmatch(self.time)
        if match is None:
            raise BackupError(f"snapshot {self.id} has no time: {self.time}")
        zone = "+00:00" if match[3] == "Z" else match[3]
        return datetime.fromisoformat(match[1] + zone).timestamp() + float(match[2] or 0)

    def as_object(self) -> dict[str, object]:
        """For a result in JSON."""
        return {"id": self.id, "time": self.time, "host": self.host, "parts": self.parts}


class Repository:
    """What restic does with a repository; each method raises BackupError with restic's last words."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._cluster = str(config["cluster"])
        # for messages: an address may have a login
        self.place = re.sub(r"//[^/@]*@", "//", str(config["repository"]))
        # the environment of a process is its owner's alone, an argument is everybody's
        self._environment = command.environment(
            RESTIC_REPOSITORY=str(config["repository"]),
            RESTIC_PASSWORD=str(config["password"]),
            RESTIC_CACHE_DIR=CACHE,
            HOME="/root",
            **{str(name): str(value) for name, value in config.get("environment", {}).items()},
        )

    def opens(self) -> bool:
        """Whether there is a repository yet; raises where its password or its address is wrong."""
        answer = self._run(["cat", "config"], OPEN_S)
        if answer.ok or any(words in answer.message for words in _NO_REPOSITORY):
            return answer.ok
        raise BackupError(self._words(answer))

    def prepare(self) -> None:
        """Create the repository where there is none, and remove locks of processes that have ended."""
        # the host of slurmdbd may have made it in the same moment
        if not self.opens() and not self._run(["init"]).ok:
            self._require(["cat", "config"])
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

    def snapshots(self) -> list[Snapshot]:
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
            raise BackupError(f"{self.place} is damaged: {path} can't be read back")
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
                why = "which is not a plain file or directory of a set: nothing of it is restored"
                raise BackupError(f"it has {path!a}, {why}")
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

    def add_password(self, password: str) -> bool:
        """Let a second password open it, alongside the one of now; whether there was anything to do."""
        if self._run(["cat", "config"], RESTIC_PASSWORD=password).ok:
            return False
        self.prepare()
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="deepops-password-") as new:
            new.write(password)
            new.flush()
            self._require(["key", "add", "--new-password-file", new.name])
        if not self._run(["cat", "config"], RESTIC_PASSWORD=password).ok:
            raise BackupError(f"{self.place} does not open with the new password")
        return True

    def drop_other_passwords(self) -> bool:
        """Let no password but the one of now open it; whether there were others."""
        keys = json.loads(self._require(["key", "list", "--json"]))
        others = [str(key["id"]) for key in keys if not key["current"]]
        for key in others:
            self._require(["key", "remove", key])
        return bool(others)

    def check(self) -> None:
        """Compare the repository's structure with itself."""
        self._require(["check"])

    def _run(self, arguments: Sequence[str], limit_s: float | None = None, **instead: str) -> command.Result:
        os.makedirs(CACHE, 0o700, exist_ok=True)
        # restic's own --retry-lock came with 0.16
        return wait_until(
            lambda: command.run(["restic", *arguments], limit_s, env={**self._environment, **instead}),
            LOCKED_S,
            PAUSE_S,
            lambda answer: answer.ok or _LOCKED not in answer.message,
        )

    def _require(self, arguments: Sequence[str]) -> str:
        answer = self._run(arguments)
        if not answer.ok:
            raise BackupError(self._words(answer))
        return answer.output

    def _words(self, answer: command.Result) -> str:
        """What restic complains of, in our words where they say more: its last line says more than its first."""
        if answer.status == command.MISSING:
            return answer.message
        lines = [line for line in answer.message.splitlines() if line.strip() and not line.startswith("{")]
        last = (lines[-1] if lines else f"exits {answer.status}")[:_MESSAGE_LIMIT]
        for marks, text in _MEANINGS:
            if any(mark in answer.message for mark in marks):
                of_ssh = [line.partition("subprocess ssh: ")[2] for line in lines if "subprocess ssh: " in line]
                reason = (of_ssh or lines[-1:])[-1:]
                return " ".join([text.format(self.place), *(f"({each[:_MESSAGE_LIMIT]})" for each in reason)])
        return "restic: " + last


# restic's words, by what they mean; `deepopsctl` has the hints (lifecycle/backup.py)
_MEANINGS = (
    (("wrong password or no key found",), "the password in secrets.yml does not open {}"),
    (
        ("unable to start the sftp session", "subprocess ssh"),
        "{} can't be reached: root of this host logs in there with a key of its own",
    ),
    (
        (
            "dial tcp", "connection refused", "no such host", "no answer within", "i/o timeout",
            "network is unreachable", "Access Denied",
        ),
        "{} can't be reached",
    ),
    (_NO_REPOSITORY, "there is no repository in {}: it is not mounted on this host, or is elsewhere"),
    (
        (
            "ciphertext verification failed", "does not match", "invalid data returned", "unable to load index",
            "not found in repository", "not found in index", "unexpected EOF", "repository contains errors", "LoadBlob",
            "invalid character", "There were", "is damaged",
        ),
        "{} is damaged",
    ),
)  # fmt: skip
