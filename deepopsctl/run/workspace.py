"""Run directories: one private directory per run, the newest are kept, `latest` points at the last."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from deepopsctl.errors import InputError
from deepopsctl.files import write_atomic
from deepopsctl.text.amounts import amount
from deepopsctl.text.answers import mapping

DEFAULT_KEEP_RUNS = 50
_RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z][a-z0-9-]*?(-\d+)?")


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run. Private: logs hold the nodes' output."""

    path: Path

    @property
    def id(self) -> str:
        """The run's name: when it started, and which command it was."""
        return self.path.name

    @property
    def events(self) -> Path:
        """One JSON line for every task that a host has finished."""
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        """Ansible's own output."""
        return self.path / "stdout.log"

    @property
    def request(self) -> Path:
        """The request and its process: written first."""
        return self.path / "run.json"

    @property
    def summary(self) -> Path:
        """The `--json` object; absent if the run was killed."""
        return self.path / "summary.json"

    @property
    def private(self) -> Path:
        """The runner's working files; they hold variables and environment and go when the run ends."""
        return self.path / ".private"

    def read(self, path: Path) -> Mapping[str, object]:
        """A JSON object of this run; empty where the file is absent or cut off."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return mapping(document)

    def write(self, path: Path, document: Mapping[str, object]) -> None:
        """Replace a JSON file of this run in one step, readable by its owner only."""
        write_atomic(path, json.dumps(document, ensure_ascii=False, indent=1) + "\n", mode=0o600)


@dataclass(frozen=True, slots=True)
class Workspace:
    """All runs of one cluster directory."""

    runs: Path

    def new_run(self, command: str, max_runs: int = DEFAULT_KEEP_RUNS) -> RunDir:
        """A new private directory; call it with the cluster's lock held."""
        stamp, number = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}", 1
        if (runs := self.newest_first()) and (newest := _age(runs[0].path)) >= (stamp, number):
            # two in one second, or the clock was set back: ids keep the order of the runs
            stamp, number = newest[0], newest[1] + 1
        path = self.runs / (f"{stamp}-{command}" + (f"-{number}" if number > 1 else ""))
        path.mkdir(mode=0o700, parents=True)
        self._clean(max_runs)
        self._point_latest_at(path)
        return RunDir(path)

    def newest_first(self) -> tuple[RunDir, ...]:
        """All runs, the newest first."""
        if not self.runs.is_dir():
            return ()
        names = [path for path in self.runs.iterdir() if _RUN_ID.fullmatch(path.name)]
        # `...-deploy-2` came after `...-deploy`, and `-10` after `-9`
        return tuple(RunDir(path) for path in sorted(names, key=_age, reverse=True))

    def find(self, prefix: str = "") -> RunDir:
        """The run whose id begins with `prefix`; the last one without a prefix."""
        runs = self.newest_first()
        if not runs:
            raise InputError.single(str(self.runs), "there are no runs yet", "start one with `deepopsctl deploy`")
        if prefix in ("", "latest"):
            return runs[0]
        matches = [run for run in runs if run.id == prefix] or [run for run in runs if run.id.startswith(prefix)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(run.id for run in matches[:5])
            raise InputError.single(
                "", f"{prefix} matches {amount(len(matches), 'run')}: {names}", "use more characters of the id"
            )
        raise InputError.single("", f"there is no run {prefix}", "see `deepopsctl runs list`")

    def _clean(self, max_runs: int) -> None:
        """Remove runs beyond `max_runs`, and private files of killed runs."""
        runs = self.newest_first()
        for run in runs[max_runs:]:
            shutil.rmtree(run.path, ignore_errors=True)
        for run in runs[1:max_runs]:
            shutil.rmtree(run.private, ignore_errors=True)

    def _point_latest_at(self, path: Path) -> None:
        temporary, latest = self.runs / ".latest", self.runs / "latest"
        for left in (temporary, latest):
            # a cluster directory that was copied with its links followed has a whole run there
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(path.name)
        temporary.replace(latest)


def private_file(path: Path) -> BinaryIO:
    """Open a new file for writing that no other user may read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return os.fdopen(handle, "wb")


def _age(path: Path) -> tuple[str, int]:
    match = _RUN_ID.fullmatch(path.name)
    number = int(match[1][1:]) if match and match[1] else 1
    return path.name[:15], number
