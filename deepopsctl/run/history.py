"""Earlier runs, read from their directories."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deepopsctl.model.json_objects import SCHEMA, PastRunEntry, RunsShowObject
from deepopsctl.run.events import HostResult, Status, Totals
from deepopsctl.run.lock import is_held_by
from deepopsctl.run.outcome import FAULT, Failure, LeftOut, reduce
from deepopsctl.run.workspace import RunDir, Workspace
from deepopsctl.text.answers import Fields, mappings

# states of a run without a summary
RUNNING, KILLED = "running", "killed"


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run: its request and its result. `state` is a verdict, `running` or `killed`."""

    run_dir: RunDir
    request: Mapping[str, object]
    summary: Mapping[str, object]
    state: str

    @property
    def hosts(self) -> dict[str, Totals]:
        """Ansible's count for each host."""
        hosts = Fields(self.summary).members("hosts")
        return {host: Totals(**_known(Totals, counts.values)) for host, counts in hosts}

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What failed, unreachable hosts last."""
        # what was left out or refused has failed in the count of no host
        silent = {host for host, totals in self.hosts.items() if totals.unreachable and not totals.failed}
        return tuple(
            Failure(
                **{**dict.fromkeys(FAULT, ""), **_known(Failure, entry)},
                unreachable=entry.get("host") in silent,
            )
            for entry in mappings(self.summary.get("failures"))
        )

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Optional downloads that it did without."""
        return Fields(self.summary).fill_each("left_out", LeftOut)

    @property
    def elapsed_s(self) -> float | None:
        """Duration in seconds; None if unknown."""
        return Fields(self.summary).real("elapsed_s") if self.summary.get("elapsed_s") is not None else None

    def as_object(self) -> PastRunEntry:
        """The entry of `runs list --json`."""
        hosts = self.hosts.values()
        return {
            "run": self.run_dir.id,
            "command": self.request.get("command", ""),
            "state": self.state,
            "started": self.request.get("started", ""),
            "user": self.request.get("user", ""),
            "elapsed_s": self.elapsed_s,
            "nodes": len(self.hosts),
            "changed": sum(bool(totals.changed) for totals in hosts),
            "failed": sum(bool(totals.failed) for totals in hosts),
            "unreachable": sum(bool(totals.unreachable) for totals in hosts),
        }

    def details(self) -> RunsShowObject:
        """The object of `runs show --json`: request, summary and files of the run."""
        return {
            "schema": SCHEMA,
            "command": "runs show",
            "ok": self.state == "ok",
            "state": self.state,
            "request": dict(self.request),
            "summary": dict(self.summary),
            "log": str(self.run_dir.log),
            "events": str(self.run_dir.events),
        }


def past_runs(workspace: Workspace) -> tuple[PastRun, ...]:
    """All runs, the newest first."""
    return tuple(past_run(run_dir) for run_dir in workspace.newest_first())


def past_run(run_dir: RunDir) -> PastRun:
    """One run. A killed one has no summary: its events show how far it came."""
    request, summary = run_dir.read(run_dir.request), run_dir.read(run_dir.summary)
    if summary:
        return PastRun(run_dir, request, summary, str(summary.get("verdict", "ok" if summary.get("ok") else "failed")))
    pid = request.get("pid")
    state = RUNNING if isinstance(pid, int) and is_held_by(run_dir.path.parent, pid) else KILLED
    return PastRun(run_dir, request, reduce(_events(run_dir)).as_object(), state)


def _known(of: type[Totals | Failure], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only another version of deepopsctl knows."""
    return {name: value for name, value in entry.items() if name in of.__dataclass_fields__}


def _events(run_dir: RunDir) -> Iterator[HostResult]:
    try:
        lines = run_dir.events.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
            yield HostResult(
                entry["host"], entry["component"], entry["play"], entry["task"], Status(entry["status"]),
                float(entry["elapsed_s"]), changed=bool(entry["changed"]), message=entry.get("message", ""),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            # the last line of a killed run may be cut off
            continue
